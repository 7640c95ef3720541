//! Lists as sets: order and repetition mean nothing.

use cel::common::types::{CelBool, LIST_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

use super::{arguments, elements};

pub(super) const FUNCTIONS: &[&str] =
    &["sets.contains", "sets.equivalent", "sets.intersects", "contains", "equivalent", "intersects"];

pub(super) fn extend(env: &mut Env) -> Result<(), DeclarationError> {
    let lists = || vec![LIST_TYPE, LIST_TYPE];
    env.add_overload("sets.contains", "sets.contains(list,list)", lists(), contains)?;
    env.add_overload("sets.equivalent", "sets.equivalent(list,list)", lists(), equivalent)?;
    env.add_overload("sets.intersects", "sets.intersects(list,list)", lists(), intersects)
}

fn compare<'b, 'v>(
    given: Vec<CowVal<'b, 'v>>,
    holds: impl Fn(&[&dyn Val], &[&dyn Val]) -> bool,
) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [one, other] = arguments(given)?;
    let answer = holds(&elements(one.as_ref())?, &elements(other.as_ref())?);
    Ok(CowVal::owned(CelBool::from(answer)))
}

fn has(list: &[&dyn Val], wanted: &dyn Val) -> bool {
    list.iter().any(|one| one.equals(wanted))
}

fn has_all(list: &[&dyn Val], wanted: &[&dyn Val]) -> bool {
    wanted.iter().all(|one| has(list, *one))
}

fn contains<'b, 'v>(given: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    compare(given, has_all)
}

fn equivalent<'b, 'v>(given: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    compare(given, |one, other| has_all(one, other) && has_all(other, one))
}

fn intersects<'b, 'v>(given: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    compare(given, |one, other| other.iter().any(|wanted| has(one, *wanted)))
}
