//! What every function of the C interface shares: owned strings and ids that cross it, status
//! codes, and the guard that turns errors and panics into them.

use std::mem::ManuallyDrop;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// `tw_text_status`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Ok = 0,
    InvalidArgument = 1,
    CorruptData = 2,
    Internal = 3,
}

/// An error on its way to the caller.
#[derive(Debug)]
pub struct Failure {
    pub status: Status,
    pub message: String,
}

impl Failure {
    pub fn invalid_argument(message: impl Into<String>) -> Self {
        Failure {
            status: Status::InvalidArgument,
            message: message.into(),
        }
    }

    pub fn corrupt_data(message: impl Into<String>) -> Self {
        Failure {
            status: Status::CorruptData,
            message: message.into(),
        }
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Failure {
            status: Status::Internal,
            message: message.into(),
        }
    }
}

/// A `Vec<T>` handed to the caller, who gives it back to the matching free function.
#[repr(C)]
pub struct OwnedArray<T> {
    data: *mut T,
    size: usize,
    capacity: usize,
}

pub type OwnedString = OwnedArray<u8>;
pub type OwnedIds = OwnedArray<u32>;

impl<T> From<Vec<T>> for OwnedArray<T> {
    fn from(values: Vec<T>) -> Self {
        let mut values = ManuallyDrop::new(values);
        OwnedArray {
            data: values.as_mut_ptr(),
            size: values.len(),
            capacity: values.capacity(),
        }
    }
}

impl<T> OwnedArray<T> {
    /// # Safety
    /// `self` came from `From<Vec<T>>` and was not released before.
    unsafe fn release(self) {
        if !self.data.is_null() {
            drop(Vec::from_raw_parts(self.data, self.size, self.capacity));
        }
    }
}

/// # Safety
/// `data` points to `size` bytes (it may be null when `size` is 0) that live as long as `'a`.
pub unsafe fn bytes<'a>(data: *const u8, size: usize) -> &'a [u8] {
    if size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, size)
    }
}

/// `bytes` as text; `what` names it in the error.
///
/// # Safety
/// As for [`bytes`].
pub unsafe fn text<'a>(data: *const u8, size: usize, what: &str) -> Result<&'a str, Failure> {
    std::str::from_utf8(bytes(data, size)).map_err(|error| {
        Failure::invalid_argument(format!(
            "{what} is not valid UTF-8 (at byte {})",
            error.valid_up_to()
        ))
    })
}

/// Runs the body of an interface function: writes what it returns to `out`, or its error, or the
/// panic it ended in, to `error`.
///
/// # Safety
/// `out` and `error` are valid for writing.
pub unsafe fn guarded<T>(
    out: *mut T,
    error: *mut OwnedString,
    body: impl FnOnce() -> Result<T, Failure>,
) -> Status {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => {
            out.write(value);
            return Status::Ok;
        }
        Ok(Err(failure)) => failure,
        Err(payload) => {
            let reason = payload
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| payload.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            Failure::internal(format!("panic in the text library: {reason}"))
        }
    };
    error.write(failure.message.into_bytes().into());
    failure.status
}

/// Runs `body` on a thread with a stack of that size, and waits for it. Panics pass through.
pub fn on_large_stack<T: Send>(
    stack_bytes: usize,
    body: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("text".to_owned())
            .stack_size(stack_bytes)
            .spawn_scoped(scope, body)
            .map_err(|error| Failure::internal(format!("cannot start a thread: {error}")))?;
        thread
            .join()
            .unwrap_or_else(|payload| std::panic::resume_unwind(payload))
    })
}

/// # Safety
/// `string` came from this library and is released once.
#[no_mangle]
pub unsafe extern "C" fn tw_text_string_free(string: OwnedString) {
    string.release();
}

/// # Safety
/// `ids` came from this library and is released once.
#[no_mangle]
pub unsafe extern "C" fn tw_text_ids_free(ids: OwnedIds) {
    ids.release();
}
