//! Tests that need something which the machine lacks. Packages of tests that do not depend on this one include the
//! file.

#![allow(unreachable_pub, reason = "where the file is included, nothing is exported")]

use std::fmt::Display;

/// Prints that a test is skipped; the test returns then. `need` names what the machine lacks, in one word.
///
/// # Panics
/// If `SKIPS_ALLOWED` is set and does not have the word. Continuous integration sets it to the words, separated by
/// spaces, for everything that it can do without.
#[track_caller]
#[allow(clippy::disallowed_methods, reason = "whether a test may be skipped comes from the environment")]
pub fn skipped(need: &str, why: impl Display) {
    let allowed = std::env::var_os("SKIPS_ALLOWED");
    let allowed = allowed.as_ref().map(|words| words.to_string_lossy());
    assert!(allows(allowed.as_deref(), need), "a test is skipped that has to run (needed: {need}): {why}");
    println!("skipped: {why}");
}

fn allows(allowed: Option<&str>, need: &str) -> bool {
    allowed.is_none_or(|words| words.split_whitespace().any(|word| word == need))
}

#[test]
fn only_listed_needs_may_be_missing() {
    assert!(allows(None, "kubectl"));
    assert!(!allows(Some(""), "kubectl"));
    assert!(!allows(Some("helm kubectl2"), "kubectl"));
    assert!(allows(Some("helm  kubectl"), "kubectl"));
}
