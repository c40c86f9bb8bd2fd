//! Tokenizers: text to ids and back, by the `tokenizers` crate.

use std::sync::Arc;

use tokenizers::Tokenizer;

use crate::ffi::{guarded, text, Failure, OwnedIds, OwnedString, Status};
use crate::token_bytes::{append_byte_level, fallback_byte, DecoderKind};

/// Immutable once loaded; shared with the decode streams made from it.
pub struct LoadedTokenizer {
    tokenizer: Tokenizer,
    pub decoder_kind: DecoderKind,
    vocab_size: usize,
}

impl LoadedTokenizer {
    fn from_json(json: &str) -> Result<Self, Failure> {
        let mut tokenizer: Tokenizer = json
            .parse()
            .map_err(|error| Failure::corrupt_data(format!("not a valid tokenizer: {error}")))?;
        // Some files ask for truncation or padding to a training length: never wanted here.
        tokenizer
            .with_truncation(None)
            .map_err(|error| Failure::corrupt_data(format!("not a valid tokenizer: {error}")))?;
        tokenizer.with_padding(None);
        Ok(LoadedTokenizer {
            decoder_kind: DecoderKind::of(tokenizer.get_decoder()),
            vocab_size: vocab_size(&tokenizer),
            tokenizer,
        })
    }

    pub fn is_special(&self, id: u32) -> bool {
        let added = self.tokenizer.get_added_vocabulary();
        let token = added.get_added_tokens_decoder().get(&id);
        token.is_some_and(|token| token.special)
    }

    /// The token that decoding sees, before the decoder; none for ids outside the vocabulary.
    pub fn decoded_token(&self, id: u32, skip_special_tokens: bool) -> Option<String> {
        let token = self.tokenizer.id_to_token(id)?;
        let added = self.tokenizer.get_added_vocabulary();
        (!skip_special_tokens || !added.is_special_token(&token)).then_some(token)
    }

    /// The bytes of every token, by id. Special tokens, which no text stands for, begin with 0xFF;
    /// ids without a token and tokens that decode to nothing by themselves have none.
    pub fn token_bytes(&self) -> Vec<Vec<u8>> {
        (0..self.vocab_size as u32)
            .map(|id| self.bytes_of(id).unwrap_or_default())
            .collect()
    }

    fn bytes_of(&self, id: u32) -> Option<Vec<u8>> {
        let token = self.tokenizer.id_to_token(id)?;
        let added = self.tokenizer.get_added_vocabulary();
        if added.is_special_token(&token) {
            return Some([b"\xff", token.as_bytes()].concat());
        }
        if added.get_added_tokens_decoder().contains_key(&id) {
            return Some(token.into_bytes());
        }
        let mut bytes = Vec::new();
        match &self.decoder_kind {
            DecoderKind::ByteLevel => append_byte_level(&token, &mut bytes),
            DecoderKind::ByteFallback { .. } => {
                let token = self.decoder_kind.replace_all(token).ok()?;
                match fallback_byte(&token) {
                    Some(byte) => bytes.push(byte),
                    None => bytes.extend_from_slice(token.as_bytes()),
                }
            }
            DecoderKind::Other => bytes = self.decode_tokens(vec![token]).ok()?.into_bytes(),
        }
        Some(bytes)
    }

    /// What the decoder makes of a list of tokens.
    pub fn decode_tokens(&self, tokens: Vec<String>) -> Result<String, Failure> {
        use tokenizers::Decoder;
        match self.tokenizer.get_decoder() {
            Some(decoder) => decoder.decode(tokens).map_err(decoding_failed),
            None => Ok(tokens.join(" ")),
        }
    }
}

fn decoding_failed(error: tokenizers::Error) -> Failure {
    Failure::internal(format!("decoding failed: {error}"))
}

/// One more than the largest id. Ids have no gaps in nearly all tokenizers, which is cheaper to
/// check than to list the vocabulary.
fn vocab_size(tokenizer: &Tokenizer) -> usize {
    let count = tokenizer.get_vocab_size(true);
    if (0..count).all(|id| tokenizer.id_to_token(id as u32).is_some()) {
        return count;
    }
    let vocab = tokenizer.get_vocab(true);
    vocab.values().max().map_or(0, |&id| id as usize + 1)
}

/// # Safety
/// As the header says: `json` has `size` bytes, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn tw_text_tokenizer_from_json(
    json: *const u8,
    size: usize,
    out: *mut *const LoadedTokenizer,
    error: *mut OwnedString,
) -> Status {
    guarded(out, error, || {
        let tokenizer = LoadedTokenizer::from_json(text(json, size, "tokenizer")?)?;
        Ok(Arc::into_raw(Arc::new(tokenizer)))
    })
}

/// # Safety
/// `tokenizer` came from `tw_text_tokenizer_from_json` and is freed once.
#[no_mangle]
pub unsafe extern "C" fn tw_text_tokenizer_free(tokenizer: *const LoadedTokenizer) {
    drop(Arc::from_raw(tokenizer));
}

/// # Safety
/// `tokenizer` is alive, `data` has `size` bytes, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn tw_text_tokenizer_encode(
    tokenizer: *const LoadedTokenizer,
    data: *const u8,
    size: usize,
    add_special_tokens: bool,
    out: *mut OwnedIds,
    error: *mut OwnedString,
) -> Status {
    guarded(out, error, || {
        let encoding = (*tokenizer)
            .tokenizer
            .encode_fast(text(data, size, "text")?, add_special_tokens)
            .map_err(|error| Failure::internal(format!("encoding failed: {error}")))?;
        Ok(encoding.get_ids().to_vec().into())
    })
}

/// # Safety
/// `tokenizer` is alive, `ids` has `count` entries, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn tw_text_tokenizer_decode(
    tokenizer: *const LoadedTokenizer,
    ids: *const u32,
    count: usize,
    skip_special_tokens: bool,
    out: *mut OwnedString,
    error: *mut OwnedString,
) -> Status {
    guarded(out, error, || {
        let ids = if count == 0 {
            &[]
        } else {
            std::slice::from_raw_parts(ids, count)
        };
        let decoded = (*tokenizer)
            .tokenizer
            .decode(ids, skip_special_tokens)
            .map_err(decoding_failed)?;
        Ok(decoded.into_bytes().into())
    })
}

/// # Safety
/// `tokenizer` is alive.
#[no_mangle]
pub unsafe extern "C" fn tw_text_tokenizer_vocab_size(tokenizer: *const LoadedTokenizer) -> usize {
    (*tokenizer).vocab_size
}

/// # Safety
/// `tokenizer` is alive.
#[no_mangle]
pub unsafe extern "C" fn tw_text_tokenizer_is_special(
    tokenizer: *const LoadedTokenizer,
    id: u32,
) -> bool {
    (*tokenizer).is_special(id)
}

/// # Safety
/// `tokenizer` is alive, `token` has `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn tw_text_tokenizer_token_to_id(
    tokenizer: *const LoadedTokenizer,
    token: *const u8,
    size: usize,
) -> i64 {
    match text(token, size, "token") {
        Ok(token) => (*tokenizer)
            .tokenizer
            .token_to_id(token)
            .map_or(-1, i64::from),
        Err(_) => -1,
    }
}

/// # Safety
/// `tokenizer` is alive, `out` is writable.
#[no_mangle]
pub unsafe extern "C" fn tw_text_tokenizer_id_to_token(
    tokenizer: *const LoadedTokenizer,
    id: u32,
    out: *mut OwnedString,
) -> bool {
    match (*tokenizer).tokenizer.id_to_token(id) {
        Some(token) => {
            out.write(token.into_bytes().into());
            true
        }
        None => false,
    }
}

/// # Safety
/// `tokenizer` is alive, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn tw_text_tokenizer_to_json(
    tokenizer: *const LoadedTokenizer,
    out: *mut OwnedString,
    error: *mut OwnedString,
) -> Status {
    guarded(out, error, || {
        let json = (*tokenizer)
            .tokenizer
            .to_string(true)
            .map_err(|error| Failure::internal(format!("cannot serialize: {error}")))?;
        Ok(json.into_bytes().into())
    })
}
