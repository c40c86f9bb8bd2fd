/* The C interface of the Rust text library: tokenizers, decoding streams and chat templates.
 *
 * Strings cross as pointer and length, UTF-8, not terminated. Functions that can fail return a
 * status; they write `out` on TW_TEXT_OK and `error` (owned by the caller) otherwise. A panic
 * inside ends as TW_TEXT_INTERNAL, never as the end of the process. Tokenizers and templates are
 * immutable and may be used by several threads at once; a decode stream by one at a time. */
#ifndef TW_TEXT_H_
#define TW_TEXT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  TW_TEXT_OK = 0,
  TW_TEXT_INVALID_ARGUMENT = 1,
  TW_TEXT_CORRUPT_DATA = 2,
  TW_TEXT_INTERNAL = 3,
} tw_text_status;

/* Owned by the caller, given back with tw_text_string_free. */
typedef struct {
  char* data;
  size_t size;
  size_t capacity;
} tw_text_string;

/* Owned by the caller, given back with tw_text_ids_free. */
typedef struct {
  uint32_t* data;
  size_t size;
  size_t capacity;
} tw_text_ids;

/* Owned by the object that returned it, valid until that object's next call. */
typedef struct {
  const char* data;
  size_t size;
} tw_text_view;

void tw_text_string_free(tw_text_string string);
void tw_text_ids_free(tw_text_ids ids);

/* ---- Tokenizers ---- */

typedef struct tw_text_tokenizer tw_text_tokenizer;

/* json: the content of a tokenizer.json. Truncation and padding that it asks for are ignored. */
tw_text_status tw_text_tokenizer_from_json(const char* json, size_t size,
                                           const tw_text_tokenizer** out, tw_text_string* error);
void tw_text_tokenizer_free(const tw_text_tokenizer* tokenizer);

tw_text_status tw_text_tokenizer_encode(const tw_text_tokenizer* tokenizer, const char* text,
                                        size_t size, bool add_special_tokens, tw_text_ids* out,
                                        tw_text_string* error);
/* Ids outside the vocabulary give no text. */
tw_text_status tw_text_tokenizer_decode(const tw_text_tokenizer* tokenizer, const uint32_t* ids,
                                        size_t count, bool skip_special_tokens, tw_text_string* out,
                                        tw_text_string* error);

/* One more than the largest id, added tokens included. */
size_t tw_text_tokenizer_vocab_size(const tw_text_tokenizer* tokenizer);
bool tw_text_tokenizer_is_special(const tw_text_tokenizer* tokenizer, uint32_t id);
/* -1 when there is no such token. */
int64_t tw_text_tokenizer_token_to_id(const tw_text_tokenizer* tokenizer, const char* token,
                                      size_t size);
/* False, and nothing written, when there is no such id. */
bool tw_text_tokenizer_id_to_token(const tw_text_tokenizer* tokenizer, uint32_t id,
                                   tw_text_string* out);
tw_text_status tw_text_tokenizer_to_json(const tw_text_tokenizer* tokenizer, tw_text_string* out,
                                         tw_text_string* error);

/* ---- Decoding one token at a time ---- */

typedef struct tw_text_decode_stream tw_text_decode_stream;

/* The stream keeps the tokenizer alive by itself. */
tw_text_decode_stream* tw_text_decode_stream_new(const tw_text_tokenizer* tokenizer,
                                                 bool skip_special_tokens);
void tw_text_decode_stream_free(tw_text_decode_stream* stream);
/* The text that the id completes: whole characters, perhaps none. */
tw_text_status tw_text_decode_stream_push(tw_text_decode_stream* stream, uint32_t id,
                                          tw_text_view* out, tw_text_string* error);
/* What is still held back, with U+FFFD for an unfinished character. */
tw_text_status tw_text_decode_stream_finish(tw_text_decode_stream* stream, tw_text_view* out,
                                            tw_text_string* error);

/* ---- Chat templates ---- */

typedef struct tw_text_template tw_text_template;

/* source: Jinja. A template that does not compile is TW_TEXT_INVALID_ARGUMENT, with its line. */
tw_text_status tw_text_template_compile(const char* source, size_t size, tw_text_template** out,
                                        tw_text_string* error);
void tw_text_template_free(tw_text_template* chat_template);
/* variables: a JSON object. unix_time: seconds, what the template's strftime_now takes as now.
 * Work and memory are bounded in proportion to the variables' size. */
tw_text_status tw_text_template_render(const tw_text_template* chat_template, const char* variables,
                                       size_t size, int64_t unix_time, tw_text_string* out,
                                       tw_text_string* error);

/* ---- Grammars: which tokens may come next ---- */

typedef struct tw_text_grammar_compiler tw_text_grammar_compiler;
/* The state of one generation; used by one thread at a time. */
typedef struct tw_text_grammar tw_text_grammar;

typedef enum {
  TW_TEXT_JSON_SCHEMA = 0,
  TW_TEXT_REGEX = 1, /* the whole text matches; no look-around, no back references */
  TW_TEXT_EBNF = 2,  /* Lark, or GBNF ("root ::= ...") */
} tw_text_grammar_kind;

/* eos: the tokens that may come where a grammar may end. Takes a fraction of a second and some
 * tens of bytes per token of the vocabulary. Immutable, for several threads at once. */
tw_text_status tw_text_grammar_compiler_new(const tw_text_tokenizer* tokenizer, const uint32_t* eos,
                                            size_t num_eos, tw_text_grammar_compiler** out,
                                            tw_text_string* error);
void tw_text_grammar_compiler_free(tw_text_grammar_compiler* compiler);

/* A grammar that is invalid, or beyond the limits of size and work, is
 * TW_TEXT_INVALID_ARGUMENT. */
tw_text_status tw_text_grammar_compile(const tw_text_grammar_compiler* compiler,
                                       tw_text_grammar_kind kind, const char* source, size_t size,
                                       tw_text_grammar** out, tw_text_string* error);
tw_text_grammar* tw_text_grammar_clone(const tw_text_grammar* grammar);
void tw_text_grammar_free(tw_text_grammar* grammar);

/* Bit id % 32 of word id / 32: that token may come next. No `out` but the words. */
tw_text_status tw_text_grammar_mask(tw_text_grammar* grammar, uint32_t* words, size_t num_words,
                                    tw_text_string* error);
/* Moves on by a token that the mask allows. */
tw_text_status tw_text_grammar_accept(tw_text_grammar* grammar, uint32_t token,
                                      tw_text_string* error);
/* Nothing but the end may follow, or the end came. */
bool tw_text_grammar_is_complete(const tw_text_grammar* grammar);

#ifdef __cplusplus
}
#endif

#endif  /* TW_TEXT_H_ */
