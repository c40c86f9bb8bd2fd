//! Grammars: which tokens may come next, by `llguidance`.
//!
//! A compiler holds the vocabulary as a trie of bytes; it is built once per tokenizer. A grammar is
//! the state of one generation: it moves on by tokens and gives the mask of those that may follow.

use std::sync::Arc;

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{JsonCompileOptions, Matcher, ParserFactory};
use serde_json::Value;

use crate::ffi::{guarded, on_large_stack, text, Failure, OwnedString, Status};
use crate::gbnf;
use crate::tokenizer::LoadedTokenizer;

/// White space between the tokens of JSON: enough for any indentation that people use, and an end
/// to models that would go on with it for ever.
const JSON_WHITE_SPACE: &str = r"[\x20\x0A\x0D\x09]{1,24}";

/// Parsers recurse into what is nested, as deep as a source of this size can nest.
const MAX_SOURCE_BYTES: usize = 256 << 10;
const STACK_BYTES: usize = 512 << 20;

enum Kind {
    JsonSchema,
    Regex,
    Ebnf,
}

impl Kind {
    /// Of a `tw_text_grammar_kind`.
    fn of(code: u32) -> Result<Self, Failure> {
        match code {
            0 => Ok(Kind::JsonSchema),
            1 => Ok(Kind::Regex),
            2 => Ok(Kind::Ebnf),
            _ => Err(Failure::internal(format!("unknown kind of grammar {code}"))),
        }
    }
}

pub struct GrammarCompiler {
    factory: ParserFactory,
}

impl GrammarCompiler {
    /// `eos`: what may come where a grammar may end.
    fn new(tokenizer: &LoadedTokenizer, eos: &[u32]) -> Result<Self, Failure> {
        let mut words = tokenizer.token_bytes();
        let mut eos: Vec<u32> = eos
            .iter()
            .copied()
            .filter(|&id| (id as usize) < words.len())
            .collect();
        if eos.is_empty() {
            // The trie wants one: an id beyond the vocabulary, which no model can choose.
            eos.push(words.len() as u32);
            words.push(b"\xff<|end|>".to_vec());
        }
        let info = TokRxInfo::new(words.len() as u32, eos[0]);
        let trie = TokTrie::from(&info, &words).with_eos_tokens(&eos);
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&environment)
            .map_err(|error| Failure::internal(format!("grammars: {error}")))?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(GrammarCompiler { factory })
    }

    fn compile(&self, kind: Kind, source: &str) -> Result<Matcher, Failure> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(Failure::invalid_argument(format!(
                "{} bytes of grammar; at most {MAX_SOURCE_BYTES} are allowed",
                source.len()
            )));
        }
        on_large_stack(STACK_BYTES, || self.compile_on_this_stack(kind, source))
    }

    fn compile_on_this_stack(&self, kind: Kind, source: &str) -> Result<Matcher, Failure> {
        let grammar = match kind {
            Kind::JsonSchema => json_schema(source)?,
            Kind::Regex => TopLevelGrammar::from_regex(source),
            Kind::Ebnf if gbnf::is_gbnf(source) => {
                TopLevelGrammar::from_lark(gbnf::to_lark(source)?)
            }
            Kind::Ebnf => TopLevelGrammar::from_lark(source.to_owned()),
        };
        let parser = self.factory.create_parser(grammar).map_err(invalid)?;
        let mut matcher = Matcher::new(Ok(parser));
        // What is too costly shows at the first mask.
        matcher.compute_mask_or_eos().map_err(invalid)?;
        Ok(matcher)
    }
}

fn json_schema(source: &str) -> Result<TopLevelGrammar, Failure> {
    let mut schema: Value = serde_json::from_str(source).map_err(invalid)?;
    match &mut schema {
        Value::Object(members) => {
            // Its own options are for its own callers.
            members.remove("x-guidance");
            JsonCompileOptions {
                whitespace_pattern: Some(JSON_WHITE_SPACE.to_owned()),
                coerce_one_of: true,
                ..JsonCompileOptions::default()
            }
            .apply_to(&mut schema);
        }
        Value::Bool(_) => {}
        _ => {
            return Err(Failure::invalid_argument(
                "a JSON schema must be an object, true or false",
            ))
        }
    }
    Ok(TopLevelGrammar::from_grammar(
        GrammarWithLexer::from_json_schema(schema),
    ))
}

fn invalid(error: impl std::fmt::Display) -> Failure {
    Failure::invalid_argument(format!("{error:#}"))
}

/// # Safety
/// As the header says: `tokenizer` is alive, `eos` has `num_eos` entries, `out` and `error` are
/// writable.
#[no_mangle]
pub unsafe extern "C" fn tw_text_grammar_compiler_new(
    tokenizer: *const LoadedTokenizer,
    eos: *const u32,
    num_eos: usize,
    out: *mut *mut GrammarCompiler,
    error: *mut OwnedString,
) -> Status {
    guarded(out, error, || {
        let eos = if num_eos == 0 {
            &[]
        } else {
            std::slice::from_raw_parts(eos, num_eos)
        };
        let compiler = GrammarCompiler::new(&*tokenizer, eos)?;
        Ok(Box::into_raw(Box::new(compiler)))
    })
}

/// # Safety
/// `compiler` came from `tw_text_grammar_compiler_new` and is freed once.
#[no_mangle]
pub unsafe extern "C" fn tw_text_grammar_compiler_free(compiler: *mut GrammarCompiler) {
    drop(Box::from_raw(compiler));
}

/// # Safety
/// `compiler` is alive, `source` has `size` bytes, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn tw_text_grammar_compile(
    compiler: *const GrammarCompiler,
    kind: u32,
    source: *const u8,
    size: usize,
    out: *mut *mut Matcher,
    error: *mut OwnedString,
) -> Status {
    guarded(out, error, || {
        let kind = Kind::of(kind)?;
        let matcher = (*compiler).compile(kind, text(source, size, "the grammar")?)?;
        Ok(Box::into_raw(Box::new(matcher)))
    })
}

/// # Safety
/// `grammar` is alive.
#[no_mangle]
pub unsafe extern "C" fn tw_text_grammar_clone(grammar: *const Matcher) -> *mut Matcher {
    // Deep: clones run on different threads.
    Box::into_raw(Box::new((*grammar).deep_clone()))
}

/// # Safety
/// `grammar` came from this library and is freed once.
#[no_mangle]
pub unsafe extern "C" fn tw_text_grammar_free(grammar: *mut Matcher) {
    drop(Box::from_raw(grammar));
}

/// # Safety
/// `grammar` is alive and used by one thread at a time, `words` has room for `num_words`, `error`
/// is writable.
#[no_mangle]
pub unsafe extern "C" fn tw_text_grammar_mask(
    grammar: *mut Matcher,
    words: *mut u32,
    num_words: usize,
    error: *mut OwnedString,
) -> Status {
    let mut done = ();
    guarded(&mut done, error, || {
        let mask = (*grammar)
            .compute_mask_or_eos()
            .map_err(|error| Failure::internal(error.to_string()))?;
        let given = mask.as_slice();
        let words = std::slice::from_raw_parts_mut(words, num_words);
        let common = words.len().min(given.len());
        words[..common].copy_from_slice(&given[..common]);
        words[common..].fill(0);
        Ok(())
    })
}

/// # Safety
/// `grammar` is alive and used by one thread at a time, `error` is writable.
#[no_mangle]
pub unsafe extern "C" fn tw_text_grammar_accept(
    grammar: *mut Matcher,
    token: u32,
    error: *mut OwnedString,
) -> Status {
    let mut done = ();
    guarded(&mut done, error, || {
        (*grammar)
            .consume_token(token)
            .map_err(|error| Failure::internal(error.to_string()))
    })
}

/// # Safety
/// `grammar` is alive.
#[no_mangle]
pub unsafe extern "C" fn tw_text_grammar_is_complete(grammar: *const Matcher) -> bool {
    (*grammar).is_stopped()
}
