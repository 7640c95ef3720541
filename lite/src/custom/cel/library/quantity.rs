//! Functions for quantities of resources.

use cel::common::types::{CelBool, CelDouble, CelInt, CelString};
use cel::{DeclarationError, Env, ExecutionError};

use super::{failed, value_type};
use crate::quantity::{NANOS, Quantity, Small};

pub(super) const FUNCTIONS: &[&str] = &[
    "add",
    "asApproximateFloat",
    "asInteger",
    "compareTo",
    "isGreaterThan",
    "isInteger",
    "isLessThan",
    "isQuantity",
    "quantity",
    "sign",
    "sub",
];

value_type!(Quantity, "kubernetes.Quantity");

pub(super) fn extend(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_overload!(env, fn quantity: (CelString<'_>) -> Result<Quantity>)?;
    cel::add_overload!(env, fn is_quantity: (CelString<'_>) -> CelBool)?;
    // A function of one argument, and no method, in the real server too.
    cel::add_overload!(env, fn sign: (Quantity) -> CelInt)?;
    cel::add_member_overload!(env, fn is_integer: (Quantity) -> CelBool)?;
    cel::add_member_overload!(env, fn as_integer: (Quantity) -> Result<CelInt>)?;
    cel::add_member_overload!(env, fn as_approximate_float: (Quantity) -> CelDouble)?;
    cel::add_member_overload!(env, fn is_greater_than: (Quantity, Quantity) -> CelBool)?;
    cel::add_member_overload!(env, fn is_less_than: (Quantity, Quantity) -> CelBool)?;
    cel::add_member_overload!(env, fn compare_to: (Quantity, Quantity) -> CelInt)?;
    cel::add_member_overload!(env, fn add: (Quantity, Quantity) -> Quantity)?;
    cel::add_member_overload!(env, fn add_number: (Quantity, CelInt) -> Quantity, name = "add")?;
    cel::add_member_overload!(env, fn sub: (Quantity, Quantity) -> Quantity)?;
    cel::add_member_overload!(env, fn sub_number: (Quantity, CelInt) -> Quantity, name = "sub")
}

fn quantity(text: &CelString<'_>) -> Result<Quantity, ExecutionError> {
    Quantity::parse(text.inner()).map_err(|why| failed("quantity", why))
}

fn is_quantity(text: &CelString<'_>) -> CelBool {
    Quantity::parse(text.inner()).is_ok().into()
}

fn sign(this: &Quantity) -> CelInt {
    CelInt::from(if this.nanos > 0 { 1 } else { -i64::from(this.nanos < 0) })
}

fn is_integer(this: &Quantity) -> CelBool {
    this.integer().is_some().into()
}

fn as_integer(this: &Quantity) -> Result<CelInt, ExecutionError> {
    this.integer().map(CelInt::from).ok_or_else(|| failed("asInteger", "cannot convert value to integer"))
}

#[allow(clippy::cast_precision_loss, reason = "an approximation is asked for")]
fn as_approximate_float(this: &Quantity) -> CelDouble {
    let float = match this.small {
        Some(Small { number, power }) => number as f64 * 10_f64.powi(power),
        None => this.nanos as f64 / NANOS as f64,
    };
    CelDouble::from(float)
}

fn is_greater_than(this: &Quantity, other: &Quantity) -> CelBool {
    (this.nanos > other.nanos).into()
}

fn is_less_than(this: &Quantity, other: &Quantity) -> CelBool {
    (this.nanos < other.nanos).into()
}

fn compare_to(this: &Quantity, other: &Quantity) -> CelInt {
    CelInt::from(this.nanos.cmp(&other.nanos) as i64)
}

fn add(this: &Quantity, other: &Quantity) -> Quantity {
    this.plus(*other)
}

fn add_number(this: &Quantity, other: &CelInt) -> Quantity {
    this.plus(Quantity::from(*other.inner()))
}

fn sub(this: &Quantity, other: &Quantity) -> Quantity {
    this.minus(*other)
}

fn sub_number(this: &Quantity, other: &CelInt) -> Quantity {
    this.minus(Quantity::from(*other.inner()))
}
