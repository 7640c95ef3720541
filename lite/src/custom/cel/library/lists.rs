//! Lists: `isSorted`, `sum`, `min`, `max`, `indexOf` and `lastIndexOf`, which Kubernetes adds. `slice`, `flatten`,
//! `distinct`, `reverse`, `sort`, `sortBy` and `lists.range` are the extension of the language that Kubernetes 1.34
//! enabled; the crate has it, without `first` and `last`.

use std::cmp::Ordering;

use cel::common::types::{CelBool, CelInt, CelOptional, DYN_TYPE, LIST_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

use super::{NO_OVERLOAD, arguments, elements, failed};

pub(super) const FUNCTIONS: &[&str] = &[
    "distinct",
    "first",
    "flatten",
    "indexOf",
    "isSorted",
    "last",
    "lastIndexOf",
    "lists.range",
    "max",
    "min",
    "range",
    "reverse",
    "slice",
    "sort",
    "sum",
];

pub(super) fn extend(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_extension(cel::extensions::lists)?;
    env.add_member_overload("isSorted", "list.isSorted()", LIST_TYPE, vec![], is_sorted)?;
    env.add_member_overload("sum", "list.sum()", LIST_TYPE, vec![], sum)?;
    env.add_member_overload("first", "list.first()", LIST_TYPE, vec![], first)?;
    env.add_member_overload("last", "list.last()", LIST_TYPE, vec![], last)?;
    env.add_member_overload("min", "list.min()", LIST_TYPE, vec![], min)?;
    env.add_member_overload("max", "list.max()", LIST_TYPE, vec![], max)?;
    env.add_member_overload("indexOf", "list.indexOf(dyn)", LIST_TYPE, vec![DYN_TYPE], index_of)?;
    env.add_member_overload("lastIndexOf", "list.lastIndexOf(dyn)", LIST_TYPE, vec![DYN_TYPE], last_index_of)
}

fn compare(function: &str, one: &dyn Val, other: &dyn Val) -> Result<Ordering, ExecutionError> {
    one.as_comparer().ok_or_else(|| failed(function, NO_OVERLOAD))?.compare(other)
}

fn is_sorted<'b, 'v>(given: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [list] = arguments(given)?;
    let elements = elements(list.as_ref())?;
    for pair in elements.windows(2) {
        if let [one, next] = pair
            && compare("isSorted", *one, *next)? == Ordering::Greater
        {
            return Ok(CowVal::owned(CelBool::from(false)));
        }
    }
    Ok(CowVal::owned(CelBool::from(true)))
}

/// The sum of numbers or durations. That of nothing is a whole 0: values have types here, and empty lists none.
fn sum<'b, 'v>(given: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [list] = arguments(given)?;
    let elements = elements(list.as_ref())?;
    let Some((first, rest)) = elements.split_first() else { return Ok(CowVal::owned(CelInt::from(0))) };
    let mut sum = first.clone_as_boxed();
    for one in rest {
        let next = sum.as_adder().ok_or_else(|| failed("sum", NO_OVERLOAD))?.add(*one)?.into_owned();
        sum = next;
    }
    Ok(CowVal::Owned(sum))
}

fn first<'b, 'v>(given: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [list] = arguments(given)?;
    let first = elements(list.as_ref())?.first().map(|one| one.clone_as_boxed());
    Ok(CowVal::owned(CelOptional::from(first)))
}

fn last<'b, 'v>(given: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [list] = arguments(given)?;
    let last = elements(list.as_ref())?.last().map(|one| one.clone_as_boxed());
    Ok(CowVal::owned(CelOptional::from(last)))
}

fn min<'b, 'v>(given: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    extreme("min", given, Ordering::Less)
}

fn max<'b, 'v>(given: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    extreme("max", given, Ordering::Greater)
}

/// The first element that no other one precedes, in this direction.
fn extreme<'b, 'v>(
    function: &str,
    given: Vec<CowVal<'b, 'v>>,
    wanted: Ordering,
) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [list] = arguments(given)?;
    let elements = elements(list.as_ref())?;
    let mut elements = elements.into_iter();
    let mut best = elements.next().ok_or_else(|| failed(function, format!("{function} called on empty list")))?;
    for one in elements {
        if compare(function, one, best)? == wanted {
            best = one;
        }
    }
    Ok(CowVal::Owned(best.clone_as_boxed()))
}

fn index_of<'b, 'v>(given: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [list, wanted] = arguments(given)?;
    let found = elements(list.as_ref())?.iter().position(|one| one.equals(wanted.as_ref()));
    Ok(index(found))
}

fn last_index_of<'b, 'v>(given: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [list, wanted] = arguments(given)?;
    let found = elements(list.as_ref())?.iter().rposition(|one| one.equals(wanted.as_ref()));
    Ok(index(found))
}

/// A place, or -1.
fn index<'b, 'v>(found: Option<usize>) -> CowVal<'b, 'v> {
    CowVal::owned(CelInt::from(found.and_then(|nth| i64::try_from(nth).ok()).unwrap_or(-1)))
}
