//! The `Date` of responses (RFC 9110 section 5.6.7), formatted once a second per thread.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::clock;

#[derive(Default)]
struct CachedDate {
    until: Option<Instant>,
    text: String,
}

thread_local! {
    static MADE: RefCell<CachedDate> = RefCell::default();
}

/// Calls `show` with the date, which may be up to a second old.
pub(crate) fn with<T>(now: Instant, show: impl FnOnce(&str) -> T) -> T {
    MADE.with_borrow_mut(|made| {
        if made.until.is_none_or(|until| until <= now) {
            made.until = Some(now + Duration::from_secs(1));
            made.text = httpdate::fmt_http_date(clock::wall());
        }
        show(&made.text)
    })
}
