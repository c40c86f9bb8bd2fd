//! The `tojson` filter as Hugging Face defines it: Python's `json.dumps`, without HTML escapes.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Deeper values are refused, as recursion has an end.
const MAX_DEPTH: usize = 128;

/// More spaces per level are cut to this.
const MAX_INDENT: usize = 64;

/// What serializing costs in fuel: far more than copying the bytes.
const BYTES_PER_FUEL: usize = 4;

/// `tojson(value, ensure_ascii=False, indent=None, *, separators=None, sort_keys=False)`
pub fn tojson(
    state: &State,
    value: &Value,
    ensure_ascii: Option<Value>,
    indent: Option<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let argument = |given: Option<Value>, name: &str| -> Result<Option<Value>, Error> {
        let named: Option<Value> = kwargs.get(name)?;
        let value = given.or(named);
        Ok(value.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let ensure_ascii = argument(ensure_ascii, "ensure_ascii")?.is_some_and(|value| value.is_true());
    let indent = match argument(indent, "indent")? {
        None => None,
        Some(value) => Some(match value.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(value)?.min(MAX_INDENT)),
        }),
    };
    let (item_separator, key_separator) = match argument(None, "separators")? {
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
        Some(pair) => (
            pair.get_item_by_index(0)?.to_string(),
            pair.get_item_by_index(1)?.to_string(),
        ),
    };
    let sort_keys = argument(None, "sort_keys")?.is_some_and(|value| value.is_true());
    kwargs.assert_all_used()?;

    let mut writer = Writer {
        state,
        out: String::new(),
        charged: 0,
        ensure_ascii,
        indent,
        item_separator,
        key_separator,
        sort_keys,
    };
    writer.value(value, 0)?;
    writer.charge()?;
    Ok(Value::from(writer.out))
}

struct Writer<'a, 'b> {
    state: &'a State<'b, 'b>,
    out: String,
    charged: usize,
    ensure_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

impl Writer<'_, '_> {
    fn charge(&mut self) -> Result<(), Error> {
        let fuel = (self.out.len() - self.charged) / BYTES_PER_FUEL;
        self.charged += fuel * BYTES_PER_FUEL;
        self.state.consume_fuel(fuel as u64)
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.charge()?;
        if depth > MAX_DEPTH {
            return Err(Error::new(
                ErrorKind::BadSerialization,
                format!("tojson: nested deeper than {MAX_DEPTH} levels"),
            ));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(bool_text(value)),
            ValueKind::Number if value.is_integer() => self.out.push_str(&value.to_string()),
            ValueKind::Number => self
                .out
                .push_str(&float_text(f64::try_from(value.clone())?)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.sequence(value, depth)?,
            ValueKind::Map => self.map(value, depth)?,
            kind => {
                return Err(Error::new(
                    ErrorKind::BadSerialization,
                    format!("tojson: an object of type {kind} is not JSON serializable"),
                ))
            }
        }
        Ok(())
    }

    fn sequence(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut empty = true;
        for item in value.try_iter()? {
            self.begin_item(empty, depth + 1);
            empty = false;
            self.value(&item, depth + 1)?;
        }
        self.end_items(empty, depth);
        self.out.push(']');
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        self.out.push('{');
        let mut empty = true;
        for key in keys {
            self.begin_item(empty, depth + 1);
            empty = false;
            match key.kind() {
                ValueKind::Bool => self.string(bool_text(&key)),
                ValueKind::None => self.string("null"),
                _ => self.string(&key.to_string()),
            }
            self.out.push_str(&self.key_separator);
            self.value(&value.get_item(&key)?, depth + 1)?;
        }
        self.end_items(empty, depth);
        self.out.push('}');
        Ok(())
    }

    fn begin_item(&mut self, first: bool, depth: usize) {
        if !first {
            self.out.push_str(&self.item_separator);
        }
        self.new_line(depth);
    }

    fn end_items(&mut self, empty: bool, depth: usize) {
        if !empty {
            self.new_line(depth);
        }
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(indent.as_str(), depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            match character {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && c > '~') => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

fn bool_text(value: &Value) -> &'static str {
    if value.is_true() {
        "true"
    } else {
        "false"
    }
}

/// Python's `repr(float)`: the shortest digits that read back as the same number, with an
/// exponent below 1e-4 and from 1e16 on.
fn float_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let mut plain = format!("{value}");
    if !plain.contains('.') {
        plain.push_str(".0");
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::float_text;

    #[test]
    fn floats_print_as_in_python() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.25e-7, "1.25e-07"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ];
        for (value, text) in cases {
            assert_eq!(float_text(value), text);
        }
    }
}
