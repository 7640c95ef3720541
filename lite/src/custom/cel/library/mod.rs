//! The libraries of Kubernetes for rules, beyond the language itself:
//! <https://kubernetes.io/docs/reference/using-api/cel/>. Each file adds the functions of one library to the
//! environment of all rules.

mod formats;
mod lists;
mod network;
mod pairs;
mod patterns;
mod quantity;
mod sets;
mod url;
mod version;

use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

pub(in crate::custom) use self::patterns::pattern;

/// Every function of the libraries that an expression may name.
pub(super) const FUNCTIONS: &[&[&str]] = &[
    formats::FUNCTIONS,
    lists::FUNCTIONS,
    network::FUNCTIONS,
    patterns::FUNCTIONS,
    quantity::FUNCTIONS,
    sets::FUNCTIONS,
    url::FUNCTIONS,
    version::FUNCTIONS,
];

/// The words of a function that is for no values like these.
pub(super) const NO_OVERLOAD: &str = "no such overload";

/// Adds the libraries to an environment.
pub(super) fn extend(env: &mut Env) -> Result<(), DeclarationError> {
    patterns::extend(env)?;
    formats::extend(env)?;
    lists::extend(env)?;
    network::extend(env)?;
    pairs::extend(env)?;
    quantity::extend(env)?;
    sets::extend(env)?;
    url::extend(env)?;
    version::extend(env)
}

/// Makes a type of ours a value of the language: rules can hold it, compare it with `==` and hand it to functions.
macro_rules! value_type {
    ($name:ty, $cel:literal) => {
        impl cel::common::value::Val for $name {
            fn get_type(&self) -> &cel::common::types::Type {
                <Self as cel::common::value::Val>::cel_type()
            }

            fn cel_type() -> &'static cel::common::types::Type {
                static TYPE: cel::common::types::Type = cel::common::types::Type::new_unspecified_type($cel);
                &TYPE
            }

            fn equals(&self, other: &dyn cel::common::value::Val) -> bool {
                other.downcast_ref::<Self>().is_some_and(|other| self == other)
            }

            fn clone_as_boxed<'v>(&self) -> Box<dyn cel::common::value::Val + 'v> {
                Box::new(self.clone())
            }

            fn as_any(&self) -> Option<&dyn std::any::Any> {
                Some(self)
            }
        }

        impl cel::common::value::StaticVal for $name {}
    };
}
use value_type;

/// Why a function could not answer, in its own words.
fn failed(function: &str, why: impl ToString) -> ExecutionError {
    ExecutionError::function_error(function, why)
}

/// The arguments of a function that has so many.
fn arguments<'b, 'v, const N: usize>(given: Vec<CowVal<'b, 'v>>) -> Result<[CowVal<'b, 'v>; N], ExecutionError> {
    given.try_into().map_err(|given: Vec<_>| ExecutionError::invalid_argument_count(N, given.len()))
}

/// The elements of a list.
pub(super) fn elements<'b, 'v>(list: &'b (dyn Val + 'v)) -> Result<Vec<&'b (dyn Val + 'v)>, ExecutionError> {
    let list = list.as_iterable().ok_or_else(|| failed("list", NO_OVERLOAD))?;
    let mut next = list.iter();
    let mut elements = Vec::new();
    while let Some(one) = next.next() {
        elements.push(one);
    }
    Ok(elements)
}

#[cfg(test)]
mod tests;
