//! Regular expressions: `matches` of the language, and `find` and `findAll`, which Kubernetes adds.

use std::cell::RefCell;
use std::collections::BTreeMap;

use cel::common::types::{CelBool, CelInt, CelList, CelString};
use cel::common::value::Val;
use cel::{DeclarationError, Env, ExecutionError};
use regex::{Regex, RegexBuilder};

use super::failed;
use crate::custom::cel::env::REMEMBERED_MAX;

/// The maximum size of a compiled pattern, and of the memory to run it.
const PATTERN_MAX_BYTES: usize = 1 << 20;

pub(super) const FUNCTIONS: &[&str] = &["find", "findAll", "matches"];

pub(super) fn extend(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_member_overload!(env, fn matches: (CelString<'_>, CelString<'_>) -> Result<CelBool>)?;
    cel::add_overload!(env, fn matches: (CelString<'_>, CelString<'_>) -> Result<CelBool>)?;
    cel::add_member_overload!(env, fn find: (CelString<'_>, CelString<'_>) -> Result<CelString<'_>>)?;
    cel::add_member_overload!(env, fn find_all: (CelString<'_>, CelString<'_>) -> Result<CelList<'_>>)?;
    cel::add_member_overload!(
        env,
        fn find_some: (CelString<'_>, CelString<'_>, CelInt) -> Result<CelList<'_>>,
        name = "findAll"
    )
}

thread_local! {
    static PATTERNS: RefCell<BTreeMap<String, Regex>> = const { RefCell::new(BTreeMap::new()) };
}

/// The regular expression of a text. Rules have theirs as literals, so that a thread compiles each once.
pub(in crate::custom) fn pattern(text: &str) -> Result<Regex, String> {
    PATTERNS.with_borrow_mut(|known| {
        if let Some(regex) = known.get(text) {
            return Ok(regex.clone());
        }
        let built = RegexBuilder::new(text).size_limit(PATTERN_MAX_BYTES).dfa_size_limit(PATTERN_MAX_BYTES).build();
        let regex = built.map_err(|why| why.to_string().lines().last().unwrap_or_default().to_owned())?;
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(text.to_owned(), regex.clone());
        Ok(regex)
    })
}

fn matches(this: &CelString<'_>, regex: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    let regex = pattern(regex.inner()).map_err(|why| failed("matches", why))?;
    Ok(regex.is_match(this.inner()).into())
}

fn find(this: &CelString<'_>, regex: &CelString<'_>) -> Result<CelString<'static>, ExecutionError> {
    let regex = pattern(regex.inner()).map_err(|why| failed("find", why))?;
    Ok(regex.find(this.inner()).map(|found| found.as_str().to_owned()).unwrap_or_default().into())
}

fn find_all(this: &CelString<'_>, regex: &CelString<'_>) -> Result<CelList<'static>, ExecutionError> {
    all(this, regex, usize::MAX)
}

/// At most so many; a negative number means all.
fn find_some(this: &CelString<'_>, regex: &CelString<'_>, most: &CelInt) -> Result<CelList<'static>, ExecutionError> {
    all(this, regex, usize::try_from(*most.inner()).unwrap_or(usize::MAX))
}

fn all(this: &CelString<'_>, regex: &CelString<'_>, most: usize) -> Result<CelList<'static>, ExecutionError> {
    let regex = pattern(regex.inner()).map_err(|why| failed("findAll", why))?;
    let found = regex.find_iter(this.inner()).take(most);
    let found = found.map(|found| Box::new(CelString::from(found.as_str().to_owned())) as Box<dyn Val>);
    Ok(found.collect::<Vec<_>>().into())
}
