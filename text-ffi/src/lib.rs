//! The Rust libraries of tilewright's text floor behind the C interface of
//! `include/tw_text.h`: one module per subject, all of them through the boundary in [`ffi`].

mod chat_template;
mod decode_stream;
mod ffi;
mod gbnf;
mod generation_blocks;
mod grammar;
mod python_json;
mod python_values;
mod token_bytes;
mod tokenizer;
