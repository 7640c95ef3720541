//! The functions of expressions: those of the language, an extension for strings, and `matches`.
//!
//! The extension is cel-go's by its names and results. It is written here because the one of the library takes a time
//! that is quadratic in a text of the client (`indexOf`), and makes a list of as many parts as there are (`split`).

use std::any::Any;
use std::cell::Cell;
use std::sync::{Arc, LazyLock};

use cel::common::types::{CelBool, CelInt, CelList, CelString, DYN_TYPE, LIST_TYPE, STRING_TYPE, Type};
use cel::common::value::{CowVal, StaticVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

use super::super::super::expression::Expression;

/// The functions that an expression may name, operators and macros aside.
pub(super) const FUNCTIONS: &[&str] = &[
    "bool",
    "bytes",
    "charAt",
    "contains",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "hasValue",
    "indexOf",
    "int",
    "join",
    "lastIndexOf",
    "lowerAscii",
    "matches",
    "or",
    "orValue",
    "replace",
    "size",
    "split",
    "startsWith",
    "string",
    "substring",
    "timestamp",
    "trim",
    "type",
    "uint",
    "upperAscii",
    "value",
];

/// The functions of the group `optional`.
pub(super) const OF_OPTIONAL: &[&str] = &["none", "of", "ofNonZeroValue"];

/// The function that replaces a call of `matches`: its pattern is compiled before.
pub(super) const MATCHES: &str = "@matches";

/// The maximum number of parts of a text.
pub(super) const PARTS_MAX: usize = 256;

static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    let added = extend(&mut env);
    debug_assert!(added.is_ok(), "{added:?}");
    Arc::new(env)
});

/// The environment of all expressions.
pub(super) fn env() -> Arc<Env> {
    Arc::clone(&ENV)
}

fn extend(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_overload(MATCHES, MATCHES, vec![STRING_TYPE, DYN_TYPE], matches)?;
    env.add_member_overload("join", "join", LIST_TYPE, vec![], join)?;
    env.add_member_overload("join", "join_by", LIST_TYPE, vec![STRING_TYPE], join)?;
    cel::add_member_overload!(env, fn char_at: (CelString<'_>, CelInt) -> Result<CelString<'_>>)?;
    cel::add_member_overload!(env, fn index_of: (CelString<'_>, CelString<'_>) -> Result<CelInt>)?;
    cel::add_member_overload!(env, fn index_of_from: (CelString<'_>, CelString<'_>, CelInt) -> Result<CelInt>, name = "indexOf")?;
    cel::add_member_overload!(env, fn last_index_of: (CelString<'_>, CelString<'_>) -> Result<CelInt>)?;
    cel::add_member_overload!(env, fn last_index_of_to: (CelString<'_>, CelString<'_>, CelInt) -> Result<CelInt>, name = "lastIndexOf")?;
    cel::add_member_overload!(env, fn lower_ascii: (CelString<'_>) -> CelString<'_>)?;
    cel::add_member_overload!(env, fn upper_ascii: (CelString<'_>) -> CelString<'_>)?;
    cel::add_member_overload!(env, fn trim: (CelString<'_>) -> CelString<'_>)?;
    cel::add_member_overload!(env, fn replace: (CelString<'_>, CelString<'_>, CelString<'_>) -> CelString<'_>)?;
    cel::add_member_overload!(env, fn replace_some: (CelString<'_>, CelString<'_>, CelString<'_>, CelInt) -> CelString<'_>, name = "replace")?;
    cel::add_member_overload!(env, fn split: (CelString<'_>, CelString<'_>) -> Result<CelList<'_>>)?;
    cel::add_member_overload!(env, fn split_some: (CelString<'_>, CelString<'_>, CelInt) -> Result<CelList<'_>>, name = "split")?;
    cel::add_member_overload!(env, fn substring: (CelString<'_>, CelInt) -> Result<CelString<'_>>)?;
    cel::add_member_overload!(env, fn substring_to: (CelString<'_>, CelInt, CelInt) -> Result<CelString<'_>>, name = "substring")
}

/// The part of a request that is too large for an expression.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Oversize {
    /// The text of the variable at this place.
    Variable(usize),
    /// A text for `matches`.
    Matched,
    /// The number of the parts of a text.
    Parts,
}

thread_local! {
    /// What was too large in the evaluation that runs on this thread. The interpreter returns one error of several, and
    /// functions cannot return one of a kind of their own.
    static OVERSIZE: Cell<Option<Oversize>> = const { Cell::new(None) };
}

/// Notes that something is too large; the evaluation goes on with an error.
pub(super) fn note_oversize(what: Oversize) {
    OVERSIZE.set(Some(what));
}

/// What was noted last since the last call.
pub(super) fn take_oversize() -> Option<Oversize> {
    OVERSIZE.take()
}

/// A compiled pattern as a value.
#[derive(Clone, Debug)]
pub(super) struct Pattern(pub(super) Expression);

static PATTERN: Type = Type::new_unspecified_type("pattern");

impl Val for Pattern {
    fn get_type(&self) -> &Type {
        &PATTERN
    }

    fn cel_type() -> &'static Type {
        &PATTERN
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Pattern {}

type Evaluated<T> = Result<T, ExecutionError>;

fn failed(function: &str, why: &str) -> ExecutionError {
    ExecutionError::function_error(function, why)
}

fn matches<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Evaluated<CowVal<'b, 'v>> {
    let unfit = || failed("matches", "needs a text and a pattern");
    let [text, pattern] = args.as_slice() else { return Err(unfit()) };
    let text = text.downcast_ref::<CelString<'_>>().ok_or_else(unfit)?;
    let pattern = pattern.downcast_ref::<Pattern>().ok_or_else(unfit)?;
    let matched = pattern.0.test(text.inner().as_bytes()).ok_or_else(|| {
        note_oversize(Oversize::Matched);
        failed("matches", "the text is too long")
    })?;
    Ok(CowVal::owned(CelBool::from(matched)))
}

fn join<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Evaluated<CowVal<'b, 'v>> {
    let unfit = || failed("join", "needs a list of strings");
    let mut args = args.iter();
    let list = args.next().and_then(|list| list.as_iterable()).ok_or_else(unfit)?;
    let separator = args.next().map(|it| it.downcast_ref::<CelString<'_>>().ok_or_else(unfit)).transpose()?;
    let (mut parts, mut items) = (Vec::new(), list.iter());
    while let Some(item) = items.next() {
        parts.push(item.downcast_ref::<CelString<'_>>().ok_or_else(unfit)?.inner());
    }
    Ok(CowVal::owned(CelString::from(parts.join(separator.map_or("", CelString::inner)))))
}

/// The place in bytes of a character by its number; the end of a text is a place too.
fn place(function: &str, text: &str, nth: i64) -> Evaluated<usize> {
    let nth = usize::try_from(nth).ok();
    let mut places = text.char_indices().map(|(place, _)| place).chain([text.len()]);
    nth.and_then(|nth| places.nth(nth)).ok_or_else(|| failed(function, "the index is out of range"))
}

/// The number of the character that begins at a place in bytes; -1 for none.
fn number(text: &str, place: Option<usize>) -> CelInt {
    let before = place.and_then(|place| text.get(..place));
    before.map_or(-1, |before| i64::try_from(before.chars().count()).unwrap_or(i64::MAX)).into()
}

fn char_at(this: &CelString<'_>, nth: &CelInt) -> Evaluated<CelString<'static>> {
    let rest = this.get(place("charAt", this, *nth.inner())?..).unwrap_or_default();
    Ok(rest.chars().next().map(String::from).unwrap_or_default().into())
}

fn index_of(this: &CelString<'_>, part: &CelString<'_>) -> Evaluated<CelInt> {
    index_of_from(this, part, &CelInt::from(0))
}

fn index_of_from(this: &CelString<'_>, part: &CelString<'_>, from: &CelInt) -> Evaluated<CelInt> {
    let from = place("indexOf", this, *from.inner())?;
    let found = this.get(from..).and_then(|rest| rest.find(part.inner()));
    Ok(number(this, found.map(|found| from + found)))
}

fn last_index_of(this: &CelString<'_>, part: &CelString<'_>) -> Evaluated<CelInt> {
    Ok(number(this, this.rfind(part.inner())))
}

/// The last occurrence that begins at a character or before it.
fn last_index_of_to(this: &CelString<'_>, part: &CelString<'_>, to: &CelInt) -> Evaluated<CelInt> {
    let end = place("lastIndexOf", this, *to.inner())?.saturating_add(part.inner().len());
    let before = this.get(..this.floor_char_boundary(end)).unwrap_or_default();
    Ok(number(this, before.rfind(part.inner())))
}

fn lower_ascii(this: &CelString<'_>) -> CelString<'static> {
    this.to_ascii_lowercase().into()
}

fn upper_ascii(this: &CelString<'_>) -> CelString<'static> {
    this.to_ascii_uppercase().into()
}

fn trim(this: &CelString<'_>) -> CelString<'static> {
    this.inner().trim().to_owned().into()
}

fn replace(this: &CelString<'_>, from: &CelString<'_>, to: &CelString<'_>) -> CelString<'static> {
    this.inner().replace(from.inner(), to.inner()).into()
}

/// A negative number means all.
fn replace_some(this: &CelString<'_>, from: &CelString<'_>, to: &CelString<'_>, count: &CelInt) -> CelString<'static> {
    let count = usize::try_from(*count.inner()).unwrap_or(usize::MAX);
    this.inner().replacen(from.inner(), to.inner(), count).into()
}

fn split(this: &CelString<'_>, separator: &CelString<'_>) -> Evaluated<CelList<'static>> {
    split_some(this, separator, &CelInt::from(-1))
}

/// At most so many parts, the last one with the rest; a negative number means all. An empty separator is between all
/// characters.
fn split_some(this: &CelString<'_>, separator: &CelString<'_>, count: &CelInt) -> Evaluated<CelList<'static>> {
    let count = usize::try_from(*count.inner()).ok();
    let most = count.unwrap_or(usize::MAX).min(PARTS_MAX + 1);
    let mut rest = (most > 0).then(|| this.inner());
    let mut parts = Vec::new();
    while let Some(text) = rest {
        let cut = match separator.inner() {
            "" => text.chars().next().map(|first| text.split_at(first.len_utf8())),
            separator => text.split_once(separator),
        };
        let (part, after) = match cut {
            Some((part, after)) if parts.len() + 1 < most => (part, Some(after)),
            Some(_) | None => (text, None),
        };
        // Between characters there is nothing after the last one.
        rest = after.filter(|after| !(separator.inner().is_empty() && after.is_empty()));
        if !(separator.inner().is_empty() && part.is_empty()) {
            parts.push(Box::new(CelString::from(part.to_owned())) as Box<dyn Val>);
        }
    }
    if parts.len() > PARTS_MAX {
        note_oversize(Oversize::Parts);
        return Err(failed("split", "the text has too many parts"));
    }
    Ok(parts.into())
}

fn substring(this: &CelString<'_>, start: &CelInt) -> Evaluated<CelString<'static>> {
    let start = place("substring", this, *start.inner())?;
    Ok(this.get(start..).unwrap_or_default().to_owned().into())
}

fn substring_to(this: &CelString<'_>, start: &CelInt, end: &CelInt) -> Evaluated<CelString<'static>> {
    let range = place("substring", this, *start.inner())?..place("substring", this, *end.inner())?;
    let part = this.get(range).ok_or_else(|| failed("substring", "the end is before the start"))?;
    Ok(part.to_owned().into())
}
