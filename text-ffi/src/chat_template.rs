//! Chat templates: Jinja as Hugging Face's `apply_chat_template` sets it up, by `minijinja`.
//!
//! Templates come with checkpoints and are not trusted: they reach nothing outside of the variables
//! given to them, and fuel bounds the steps of rendering. Not bounded is the memory of lists that a
//! template concatenates with themselves.

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};

use crate::ffi::{guarded, on_large_stack, text, Failure, OwnedString, Status};
use crate::{generation_blocks, python_json, python_values};

/// Fuel: about one unit per instruction or 64 bytes made. What real templates take is linear in
/// the conversation, a few hundred units per message at most.
const BASE_FUEL: u64 = 500_000;
const FUEL_PER_INPUT_BYTE: u64 = 8;
const MAX_FUEL: u64 = 8_000_000;

/// A loop can nest lists as deep as its fuel lasts, and freeing them recurses: measured, at most
/// about 100 bytes of stack per unit of fuel. The stack is address space until it is used.
const STACK_BYTES_PER_FUEL: u64 = 128;

const NAME: &str = "chat template";

pub struct ChatTemplate {
    environment: Environment<'static>,
}

impl ChatTemplate {
    fn compile(source: &str) -> Result<Self, Failure> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|error| Failure::internal(describe(&error)))?;
        environment.set_syntax(syntax);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_unknown_method_callback(python_values::unknown_method);
        minijinja_contrib::add_to_environment(&mut environment);
        environment.add_filter("tojson", python_json::tojson);
        environment.add_test("sequence", python_values::is_sequence);
        environment.add_test("iterable", python_values::is_iterable);
        environment.add_function(
            "raise_exception",
            |message: String| -> Result<Value, Error> {
                Err(Error::new(ErrorKind::InvalidOperation, message))
            },
        );
        environment
            .add_template_owned(NAME, generation_blocks::rewrite(source).into_owned())
            .map_err(|error| Failure::invalid_argument(describe(&error)))?;
        Ok(ChatTemplate { environment })
    }

    /// `variables`: a JSON object. `unix_time` is what strftime_now takes as now.
    fn render(&self, variables: &str, unix_time: i64) -> Result<String, Failure> {
        let fuel = (BASE_FUEL + FUEL_PER_INPUT_BYTE * variables.len() as u64).min(MAX_FUEL);
        on_large_stack((fuel * STACK_BYTES_PER_FUEL) as usize, || {
            self.render_with_fuel(variables, unix_time, fuel)
        })
    }

    fn render_with_fuel(
        &self,
        variables: &str,
        unix_time: i64,
        fuel: u64,
    ) -> Result<String, Failure> {
        let context: Value = serde_json::from_str(variables)
            .map_err(|error| Failure::invalid_argument(format!("template variables: {error}")))?;
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(fuel));
        environment.add_function("strftime_now", move |format: &str| {
            local_time(format, unix_time)
        });
        environment
            .get_template(NAME)
            .and_then(|template| template.render(context))
            .map_err(|error| Failure::invalid_argument(describe(&error)))
    }
}

fn local_time(format: &str, unix_time: i64) -> Result<String, Error> {
    let failed = |error: jiff::Error| {
        Error::new(
            ErrorKind::InvalidOperation,
            format!("strftime_now({format:?}): {error}"),
        )
    };
    let now = jiff::Timestamp::from_second(unix_time).map_err(failed)?;
    let local = now.to_zoned_datetime(jiff::tz::TimeZone::system());
    jiff::fmt::strtime::format(format, &local).map_err(failed)
}

/// What went wrong and where: "line 3: undefined value: ...".
fn describe(error: &Error) -> String {
    let what = match (error.kind(), error.detail()) {
        // What the template itself raises speaks for itself.
        (ErrorKind::InvalidOperation, Some(detail)) => detail.to_owned(),
        (ErrorKind::OutOfFuel, _) => "takes too many steps (does a loop not end?)".to_owned(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    match error.line() {
        Some(line) => format!("line {line}: {what}"),
        None => what,
    }
}

/// # Safety
/// As the header says: `source` has `size` bytes, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn tw_text_template_compile(
    source: *const u8,
    size: usize,
    out: *mut *mut ChatTemplate,
    error: *mut OwnedString,
) -> Status {
    guarded(out, error, || {
        let template = ChatTemplate::compile(text(source, size, "chat template")?)?;
        Ok(Box::into_raw(Box::new(template)))
    })
}

/// # Safety
/// `template` came from `tw_text_template_compile` and is freed once.
#[no_mangle]
pub unsafe extern "C" fn tw_text_template_free(template: *mut ChatTemplate) {
    drop(Box::from_raw(template));
}

/// # Safety
/// `template` is alive, `variables` has `size` bytes, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn tw_text_template_render(
    template: *const ChatTemplate,
    variables: *const u8,
    size: usize,
    unix_time: i64,
    out: *mut OwnedString,
    error: *mut OwnedString,
) -> Status {
    guarded(out, error, || {
        let variables = text(variables, size, "template variables")?;
        let rendered = (*template).render(variables, unix_time)?;
        Ok(rendered.into_bytes().into())
    })
}
