//! How a tokenizer's decoder turns tokens into bytes, for decoding one token at a time.
//!
//! The library's decoders work on whole lists of tokens. The two that nearly all language models
//! use can be stated per token, which makes incremental decoding exact and its cost constant.

use std::sync::OnceLock;

use tokenizers::decoders::DecoderWrapper;
use tokenizers::normalizers::replace::Replace;
use tokenizers::Decoder;

use crate::ffi::Failure;

/// The decoders that are known well enough to run token by token.
pub enum DecoderKind {
    /// GPT-2's: each character of a token stands for one byte.
    ByteLevel,
    /// SentencePiece's: replacements (▁ to space), `<0xNN>` tokens for single bytes, and perhaps
    /// leading characters to strip from the whole text.
    ByteFallback {
        replacements: Vec<Replace>,
        strip: Option<(char, usize)>,
    },
    /// Anything else, decoded in a sliding window.
    Other,
}

impl DecoderKind {
    pub fn of(decoder: Option<&DecoderWrapper>) -> Self {
        match decoder {
            Some(DecoderWrapper::ByteLevel(_)) => DecoderKind::ByteLevel,
            Some(DecoderWrapper::Sequence(sequence)) => Self::of_sequence(sequence.get_decoders()),
            _ => DecoderKind::Other,
        }
    }

    fn of_sequence(decoders: &[DecoderWrapper]) -> Self {
        if let [DecoderWrapper::ByteLevel(_)] = decoders {
            return DecoderKind::ByteLevel;
        }
        let mut rest = decoders;
        let mut replacements = Vec::new();
        while let [DecoderWrapper::Replace(replace), tail @ ..] = rest {
            replacements.push(replace.clone());
            rest = tail;
        }
        let strip = match rest {
            [DecoderWrapper::ByteFallback(_), DecoderWrapper::Fuse(_)] => None,
            [DecoderWrapper::ByteFallback(_), DecoderWrapper::Fuse(_), DecoderWrapper::Strip(strip)]
                if strip.stop == 0 =>
            {
                Some((strip.content, strip.start))
            }
            _ => return DecoderKind::Other,
        };
        DecoderKind::ByteFallback {
            replacements,
            strip,
        }
    }

    /// The token after the replacements, where there are any.
    pub fn replace_all(&self, token: String) -> Result<String, Failure> {
        let DecoderKind::ByteFallback { replacements, .. } = self else {
            return Ok(token);
        };
        replacements
            .iter()
            .try_fold(token, |token, replace| {
                Ok(replace.decode_chain(vec![token])?.concat())
            })
            .map_err(|error: tokenizers::Error| {
                Failure::internal(format!("decoding failed: {error}"))
            })
    }
}

/// The byte that a character stands for in GPT-2's alphabet: printable Latin-1 characters stand
/// for themselves, the other bytes, in order, for the characters from U+0100 on.
fn byte_of(character: char) -> Option<u8> {
    static BYTES: OnceLock<[Option<u8>; 324]> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| {
        let mut table = [None; 324];
        let mut next = 256;
        for byte in 0..=255u8 {
            let printable = matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
            if printable {
                table[byte as usize] = Some(byte);
            } else {
                table[next] = Some(byte);
                next += 1;
            }
        }
        table
    });
    bytes.get(character as usize).copied().flatten()
}

/// Appends the bytes of a byte-level token; a token with a character outside the alphabet (an
/// added token) stands for its own text.
pub fn append_byte_level(token: &str, bytes: &mut Vec<u8>) {
    let begin = bytes.len();
    for character in token.chars() {
        match byte_of(character) {
            Some(byte) => bytes.push(byte),
            None => {
                bytes.truncate(begin);
                bytes.extend_from_slice(token.as_bytes());
                return;
            }
        }
    }
}

/// The byte of a `<0xNN>` token.
pub fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_covers_every_byte_once() {
        let mut bytes: Vec<u8> = (0..324u32)
            .filter_map(|c| byte_of(char::from_u32(c).unwrap()))
            .collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255u8).collect::<Vec<_>>());
        assert_eq!(byte_of('Ġ'), Some(b' '));
        assert_eq!(byte_of('Ċ'), Some(b'\n'));
        assert_eq!(byte_of('▁'), None);
    }

    #[test]
    fn fallback_bytes() {
        assert_eq!(fallback_byte("<0x0A>"), Some(10));
        assert_eq!(fallback_byte("<0xff>"), Some(255));
        assert_eq!(
            fallback_byte("<0x+A>"),
            Some(10),
            "as the reference's parser has it"
        );
        assert_eq!(fallback_byte("<0xé>"), None);
        assert_eq!(fallback_byte("<0x123>"), None);
    }
}
