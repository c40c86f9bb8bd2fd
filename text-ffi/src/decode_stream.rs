//! Decoding one token at a time.
//!
//! The concatenated pieces equal what decoding the whole list gives, at a cost per token that does
//! not grow with the list. One exception, for tokenizers with byte fallback: when a run of byte
//! tokens turns out to be invalid UTF-8 after characters of that run were shown, those characters
//! stay, while the whole-list decoder would replace the run by U+FFFD from its beginning.

use std::sync::Arc;

use crate::ffi::{guarded, Failure, OwnedString, Status};
use crate::token_bytes::{append_byte_level, fallback_byte, DecoderKind};
use crate::tokenizer::LoadedTokenizer;

const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// Tokens that a window may hold back because their text ends in an unfinished character.
const MAX_HELD_TOKENS: usize = 16;

enum State {
    ByteLevel {
        /// The beginning of a character.
        pending: Vec<u8>,
    },
    ByteFallback {
        /// The beginning of a character in the current run of byte tokens.
        pending: Vec<u8>,
        /// The current run has shown to be no text: all that follows in it is replaced.
        run_is_invalid: bool,
        /// How many leading characters may still be stripped.
        strip_left: usize,
    },
    Window {
        /// The last tokens: first those that were shown and give the context, then those held back.
        tokens: Vec<String>,
        num_shown: usize,
    },
}

pub struct DecodeStream {
    tokenizer: Arc<LoadedTokenizer>,
    skip_special_tokens: bool,
    state: State,
    piece: String,
}

impl DecodeStream {
    pub fn new(tokenizer: Arc<LoadedTokenizer>, skip_special_tokens: bool) -> Self {
        let state = match &tokenizer.decoder_kind {
            DecoderKind::ByteLevel => State::ByteLevel {
                pending: Vec::new(),
            },
            DecoderKind::ByteFallback { strip, .. } => State::ByteFallback {
                pending: Vec::new(),
                run_is_invalid: false,
                strip_left: strip.map_or(0, |(_, count)| count),
            },
            DecoderKind::Other => State::Window {
                tokens: Vec::new(),
                num_shown: 0,
            },
        };
        DecodeStream {
            tokenizer,
            skip_special_tokens,
            state,
            piece: String::new(),
        }
    }

    /// The text that this id completes.
    pub fn push(&mut self, id: u32) -> Result<&str, Failure> {
        self.piece.clear();
        let Some(token) = self.tokenizer.decoded_token(id, self.skip_special_tokens) else {
            return Ok("");
        };
        match &mut self.state {
            State::ByteLevel { pending } => {
                append_byte_level(&token, pending);
                loop {
                    let num_invalid = take_characters(pending, &mut self.piece);
                    if num_invalid == 0 {
                        break;
                    }
                    pending.drain(..num_invalid);
                    self.piece.push(REPLACEMENT);
                }
            }
            State::ByteFallback {
                pending,
                run_is_invalid,
                ..
            } => {
                let token = self.tokenizer.decoder_kind.replace_all(token)?;
                if let Some(byte) = fallback_byte(&token) {
                    pending.push(byte);
                    if *run_is_invalid || take_characters(pending, &mut self.piece) > 0 {
                        *run_is_invalid = true;
                        replace_bytes(pending, &mut self.piece);
                    }
                } else {
                    *run_is_invalid = false;
                    replace_bytes(pending, &mut self.piece);
                    self.piece.push_str(&token);
                }
            }
            State::Window { tokens, num_shown } => {
                tokens.push(token);
                show_window(&self.tokenizer, tokens, num_shown, false, &mut self.piece)?;
            }
        }
        self.strip_beginning();
        Ok(&self.piece)
    }

    /// What is still held back, with U+FFFD for an unfinished character.
    pub fn finish(&mut self) -> Result<&str, Failure> {
        self.piece.clear();
        match &mut self.state {
            State::ByteLevel { pending } => {
                self.piece.push_str(&String::from_utf8_lossy(pending));
                pending.clear();
            }
            State::ByteFallback { pending, .. } => {
                replace_bytes(pending, &mut self.piece);
            }
            State::Window { tokens, num_shown } => {
                show_window(&self.tokenizer, tokens, num_shown, true, &mut self.piece)?;
            }
        }
        self.strip_beginning();
        Ok(&self.piece)
    }

    fn strip_beginning(&mut self) {
        let State::ByteFallback { strip_left, .. } = &mut self.state else {
            return;
        };
        let DecoderKind::ByteFallback {
            strip: Some((content, _)),
            ..
        } = self.tokenizer.decoder_kind
        else {
            return;
        };
        let mut cut = 0;
        for character in self.piece.chars() {
            if *strip_left == 0 {
                break;
            }
            if character != content {
                *strip_left = 0;
                break;
            }
            *strip_left -= 1;
            cut += character.len_utf8();
        }
        self.piece.drain(..cut);
    }
}

/// Moves whole characters from `pending` to `piece`. Returns how many of the bytes that are left
/// can be no part of any character; 0 when they begin one.
fn take_characters(pending: &mut Vec<u8>, piece: &mut String) -> usize {
    let num_invalid = match std::str::from_utf8(pending) {
        Ok(_) => 0,
        Err(error) => error.error_len().unwrap_or(0),
    };
    let valid = pending
        .utf8_chunks()
        .next()
        .map_or("", |chunk| chunk.valid());
    piece.push_str(valid);
    let num_taken = valid.len();
    pending.drain(..num_taken);
    num_invalid
}

/// One U+FFFD for each byte.
fn replace_bytes(pending: &mut Vec<u8>, piece: &mut String) {
    piece.extend(std::iter::repeat_n(REPLACEMENT, pending.len()));
    pending.clear();
}

/// Shows the tokens held back unless their text ends in an unfinished character, as the difference
/// of two decodings; tokens shown stay in the window once, as the context of those that follow.
fn show_window(
    tokenizer: &LoadedTokenizer,
    tokens: &mut Vec<String>,
    num_shown: &mut usize,
    all: bool,
    piece: &mut String,
) -> Result<(), Failure> {
    let text = tokenizer.decode_tokens(tokens.clone())?;
    let held = tokens.len() - *num_shown;
    if !all && text.ends_with(REPLACEMENT) && held < MAX_HELD_TOKENS {
        return Ok(());
    }
    let shown = tokenizer.decode_tokens(tokens[..*num_shown].to_vec())?;
    let common = shown
        .char_indices()
        .zip(text.chars())
        .find(|((_, a), b)| a != b)
        .map_or(shown.len().min(text.len()), |((index, _), _)| index);
    piece.push_str(&text[common..]);
    // Tokens that gave no text (a decoder may drop them) are no context of their own.
    if text.len() > shown.len() {
        tokens.drain(..*num_shown);
    }
    *num_shown = tokens.len();
    if tokens.len() > MAX_HELD_TOKENS {
        tokens.drain(..tokens.len() - MAX_HELD_TOKENS);
        *num_shown = tokens.len();
    }
    Ok(())
}

/// # Safety
/// `tokenizer` is alive; the stream keeps its own reference.
#[no_mangle]
pub unsafe extern "C" fn tw_text_decode_stream_new(
    tokenizer: *const LoadedTokenizer,
    skip_special_tokens: bool,
) -> *mut DecodeStream {
    Arc::increment_strong_count(tokenizer);
    let tokenizer = Arc::from_raw(tokenizer);
    Box::into_raw(Box::new(DecodeStream::new(tokenizer, skip_special_tokens)))
}

/// # Safety
/// `stream` came from `tw_text_decode_stream_new` and is freed once.
#[no_mangle]
pub unsafe extern "C" fn tw_text_decode_stream_free(stream: *mut DecodeStream) {
    drop(Box::from_raw(stream));
}

/// Text that belongs to the stream until its next call: `tw_text_view`.
#[repr(C)]
pub struct View {
    data: *const u8,
    size: usize,
}

impl From<&str> for View {
    fn from(text: &str) -> Self {
        View {
            data: text.as_ptr(),
            size: text.len(),
        }
    }
}

/// # Safety
/// `stream` is alive and used by one thread at a time, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn tw_text_decode_stream_push(
    stream: *mut DecodeStream,
    id: u32,
    out: *mut View,
    error: *mut OwnedString,
) -> Status {
    guarded(out, error, || (*stream).push(id).map(View::from))
}

/// # Safety
/// As for `tw_text_decode_stream_push`.
#[no_mangle]
pub unsafe extern "C" fn tw_text_decode_stream_finish(
    stream: *mut DecodeStream,
    out: *mut View,
    error: *mut OwnedString,
) -> Status {
    guarded(out, error, || (*stream).finish().map(View::from))
}
