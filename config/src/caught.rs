//! Panics as values: pure code can be run so that its panic affects no one else.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::finding::printable;
use crate::object::Kind;

/// Runs pure code and returns the message of its panic as the error. Only for pure code: nothing may be left half done.
///
/// # Errors
/// The panic message, if the code panics.
pub fn caught<T>(pure: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(pure)).map_err(|panic| panic_message(&*panic))
}

/// The message of a panic, if it has one.
#[must_use]
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a message".to_owned())
}

/// The message of a panic for the owner of an object. About a Secret it says nothing more, since it may quote the
/// Secret.
#[must_use]
pub fn for_owner(kind: Kind, message: &str) -> String {
    if kind == Kind::Secret { "its reader panicked".to_owned() } else { printable(message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_message() {
        let number = |text: &str| text.parse::<u8>().unwrap_or_else(|_| panic!("no {}", "number"));
        assert_eq!(caught(|| number("7")), Ok(7));
        assert_eq!(caught(|| number("x")), Err("no number".to_owned()));
        assert_eq!(caught(|| panic!("plain")), Err::<(), _>("plain".to_owned()));
        assert_eq!(caught(|| std::panic::panic_any(7)), Err::<(), _>("a panic without a message".to_owned()));
    }
}
