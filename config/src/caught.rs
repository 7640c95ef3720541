//! A panic as a value: what is pure can be run so that its panic costs nobody else anything.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs something and gives what a panic of it said as the error. For what is pure: then nothing is left half done.
///
/// # Errors
/// When it panics: the words of the panic.
pub fn caught<T>(pure: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(pure)).map_err(|panic| said(&*panic))
}

/// The words of a panic, where it has any.
#[must_use]
pub fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_its_words() {
        let number = |text: &str| text.parse::<u8>().unwrap_or_else(|_| panic!("no {}", "number"));
        assert_eq!(caught(|| number("7")), Ok(7));
        assert_eq!(caught(|| number("x")), Err("no number".to_owned()));
        assert_eq!(caught(|| panic!("plain")), Err::<(), _>("plain".to_owned()));
        assert_eq!(caught(|| std::panic::panic_any(7)), Err::<(), _>("a panic without words".to_owned()));
    }
}
