//! What templates expect of Python's values and `minijinja` has otherwise: methods of `str` that
//! `minijinja-contrib` leaves out, and tests that look at Python's protocols.

use minijinja::value::{from_args, Tuple, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// The environment's callback for methods that it does not know.
pub fn unknown_method(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if let (ValueKind::String, Some(text)) = (value.kind(), value.as_str()) {
        match method {
            "removeprefix" => {
                let (prefix,): (&str,) = from_args(args)?;
                return Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)));
            }
            "removesuffix" => {
                let (suffix,): (&str,) = from_args(args)?;
                return Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)));
            }
            "partition" => return partition(text, args),
            "rpartition" => return rpartition(text, args),
            "rsplit" => return rsplit(text, args),
            _ => {}
        }
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
}

/// `is sequence`: what has a length and items, so dicts and strings as well.
pub fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Seq | ValueKind::Map | ValueKind::String
    )
}

/// `is iterable`: an undefined value iterates as empty, none does not iterate.
pub fn is_iterable(value: &Value) -> bool {
    is_sequence(value) || matches!(value.kind(), ValueKind::Iterable | ValueKind::Undefined)
}

fn separator_of(args: &[Value]) -> Result<&str, Error> {
    let (separator,): (&str,) = from_args(args)?;
    if separator.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "empty separator"));
    }
    Ok(separator)
}

fn partition(text: &str, args: &[Value]) -> Result<Value, Error> {
    let separator = separator_of(args)?;
    let parts = match text.split_once(separator) {
        Some((head, tail)) => [head, separator, tail],
        None => [text, "", ""],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from).to_vec())))
}

fn rpartition(text: &str, args: &[Value]) -> Result<Value, Error> {
    let separator = separator_of(args)?;
    let parts = match text.rsplit_once(separator) {
        Some((head, tail)) => [head, separator, tail],
        None => ["", "", text],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from).to_vec())))
}

/// `rsplit(sep, maxsplit=-1)`; splitting at white space is left to `split`.
fn rsplit(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator, max_splits): (&str, Option<i64>) = from_args(args)?;
    if separator.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "empty separator"));
    }
    let mut parts: Vec<Value> = match max_splits.and_then(|count| usize::try_from(count).ok()) {
        Some(count) => text
            .rsplitn(count.saturating_add(1), separator)
            .map(Value::from)
            .collect(),
        None => text.rsplit(separator).map(Value::from).collect(),
    };
    parts.reverse();
    Ok(Value::from(parts))
}
