//! `{% generation %}` ... `{% endgeneration %}`: a tag that Hugging Face adds to Jinja to mark what
//! the assistant wrote, for training. It renders its body in a scope of its own, which is what an
//! empty `{% with %}` does, so the tags are rewritten to that, keeping every line in place.

use std::borrow::Cow;

pub fn rewrite(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return Cow::Borrowed(source);
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    let mut raw = false;
    while let Some(begin) = rest.find('{') {
        let (text, tail) = rest.split_at(begin);
        out.push_str(text);
        let end = match &tail.as_bytes()[..tail.len().min(2)] {
            b"{%" => statement_end(tail, "%}"),
            b"{{" if !raw => statement_end(tail, "}}"),
            b"{#" if !raw => tail.find("#}").map_or(tail.len(), |end| end + 2),
            _ => 1,
        };
        let (tag, after) = tail.split_at(end);
        match tag.strip_prefix("{%").map(tag_name) {
            Some("endraw") => raw = false,
            Some("raw") => raw = true,
            Some("generation") if !raw => {
                out.push_str(&tag.replacen("generation", "with", 1));
                rest = after;
                continue;
            }
            Some("endgeneration") if !raw => {
                out.push_str(&tag.replacen("endgeneration", "endwith", 1));
                rest = after;
                continue;
            }
            // Within a raw block, what looks like a tag may hide the end of the block.
            Some(_) if raw => {
                out.push_str("{%");
                rest = &tail[2..];
                continue;
            }
            _ => {}
        }
        out.push_str(tag);
        rest = after;
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The first word of a statement, after its `{%`.
fn tag_name(statement: &str) -> &str {
    let statement = statement.strip_prefix(['-', '+']).unwrap_or(statement);
    let statement = statement.trim_start();
    let end = statement
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .unwrap_or(statement.len());
    &statement[..end]
}

/// Where the tag that `text` begins with ends; its strings may contain the delimiter.
fn statement_end(text: &str, delimiter: &str) -> usize {
    let bytes = text.as_bytes();
    let mut quote = None;
    let mut index = 2;
    while index < bytes.len() {
        match (quote, bytes[index]) {
            (Some(_), b'\\') => index += 1,
            (Some(open), byte) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'\'' | b'"') => quote = Some(bytes[index]),
            (None, _) if bytes[index..].starts_with(delimiter.as_bytes()) => return index + 2,
            (None, _) => {}
        }
        index += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::rewrite;

    #[test]
    fn tags_become_scopes() {
        let cases = [
            ("no tags", "no tags"),
            (
                "a{%- generation -%}b{% endgeneration %}c",
                "a{%- with -%}b{% endwith %}c",
            ),
            (
                "{{ '{% generation %}' }}{# {% generation %} #}",
                "{{ '{% generation %}' }}{# {% generation %} #}",
            ),
            (
                "{% raw %}{% generation %}{% endraw %}{%generation%}",
                "{% raw %}{% generation %}{% endraw %}{%with%}",
            ),
            (
                "{% if add_generation_prompt %}x{% endif %}",
                "{% if add_generation_prompt %}x{% endif %}",
            ),
            ("{% generation", "{% with"),
            ("{", "{"),
            ("é{é{%é generation", "é{é{%é generation"),
        ];
        for (source, expected) in cases {
            assert_eq!(rewrite(source), expected);
        }
    }
}
