//! Quantities of resources, such as `1.5Gi` and `200m`
//! (<https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>).
//!
//! No crate that is kept knows them exactly. Here a quantity is a whole number of its smallest unit, 10⁻⁹, in 128 bits; one above
//! 1.7 · 10²⁹ counts as that. The real server keeps most as a number of 64 bits and a power of ten besides, and takes only
//! those without a fraction in that form for integers; so this form is kept too.

use cel::common::types::{CelBool, CelDouble, CelInt, CelString};
use cel::{DeclarationError, Env, ExecutionError};

use super::{failed, value_type};

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

const FORM: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX: &str = "unable to parse quantity's suffix";

/// Units of 10⁻⁹ in one.
const NANOS: i128 = 1_000_000_000;
/// Places to which a number is shifted at most: more are beyond what is kept.
const SHIFT_MAX: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Quantity {
    nanos: i128,
    small: Option<Small>,
}

/// A number, and the power of ten that it is multiplied by.
#[derive(Clone, Copy, Debug)]
struct Small {
    number: i64,
    power: i32,
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

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

/// What a suffix multiplies by.
#[derive(Clone, Copy)]
enum Factor {
    /// A power of two.
    Binary(u32),
    /// A power of ten.
    Decimal(i32),
}

impl Factor {
    fn parse(suffix: &str) -> Option<Self> {
        let unit = match suffix {
            "Ki" => Self::Binary(10),
            "Mi" => Self::Binary(20),
            "Gi" => Self::Binary(30),
            "Ti" => Self::Binary(40),
            "Pi" => Self::Binary(50),
            "Ei" => Self::Binary(60),
            "n" => Self::Decimal(-9),
            "u" => Self::Decimal(-6),
            "m" => Self::Decimal(-3),
            "" => Self::Decimal(0),
            "k" => Self::Decimal(3),
            "M" => Self::Decimal(6),
            "G" => Self::Decimal(9),
            "T" => Self::Decimal(12),
            "P" => Self::Decimal(15),
            "E" => Self::Decimal(18),
            _ => return suffix.strip_prefix(['e', 'E'])?.parse().ok().map(Self::Decimal),
        };
        Some(unit)
    }
}

impl Quantity {
    fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err(FORM);
        }
        let digits_end = |text: &str| text.find(|one: char| !one.is_ascii_digit()).unwrap_or(text.len());
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, rest) = unsigned.split_at(digits_end(unsigned));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits_end(rest)),
            None => ("", rest),
        };
        let exponent = suffix.trim_start_matches(|one| "eEinumkKMGTP".contains(one));
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if digits_end(exponent) < exponent.len() {
            return Err(FORM);
        }
        let factor = Factor::parse(suffix).ok_or(SUFFIX)?;
        let whole = whole.trim_start_matches('0');
        let sign = if text.starts_with('-') { -1 } else { 1 };
        let small = small(whole, fraction, factor).map(|small| Small { number: sign * small.number, ..small });
        Ok(Self { nanos: i128::from(sign) * nanos(whole, fraction, factor), small })
    }

    fn plus(self, other: Self) -> Self {
        let small = self.small.zip(other.small).and_then(|(one, other)| one.plus(other));
        Self { nanos: self.nanos.saturating_add(other.nanos), small }
    }

    fn minus(self, other: Self) -> Self {
        let negative = |small: Small| Some(Small { number: small.number.checked_neg()?, ..small });
        self.plus(Self { nanos: other.nanos.saturating_neg(), small: other.small.and_then(negative) })
    }

    fn integer(self) -> Option<i64> {
        let small = self.small?;
        small.at_power(0)
    }
}

impl From<i64> for Quantity {
    fn from(number: i64) -> Self {
        Self { nanos: i128::from(number) * NANOS, small: Some(Small { number, power: 0 }) }
    }
}

impl Small {
    /// The number that this is at a power that is not higher.
    fn at_power(self, power: i32) -> Option<i64> {
        if self.number == 0 && self.power >= power {
            return Some(0);
        }
        let shift = u32::try_from(self.power.checked_sub(power)?).ok()?;
        self.number.checked_mul(10_i64.checked_pow(shift)?)
    }

    fn plus(self, other: Self) -> Option<Self> {
        if other.number == 0 {
            return Some(self);
        }
        if self.number == 0 {
            return Some(other);
        }
        let power = self.power.min(other.power);
        let number = self.at_power(power)?.checked_add(other.at_power(power)?)?;
        Some(Self { number, power })
    }
}

/// The short form, of those that the real server keeps in it: with few digits, and none below 10⁻⁹.
fn small(whole: &str, fraction: &str, factor: Factor) -> Option<Small> {
    let whole = if whole.is_empty() { "0" } else { whole };
    let digits = i64::try_from(whole.len() + fraction.len()).ok()?;
    let (factor, power, digits_max) = match factor {
        Factor::Decimal(power) => (1, power, 18),
        Factor::Binary(bits) if fraction.is_empty() => (1_i64.checked_shl(bits)?, 0, 14 - i64::from(bits) * 3 / 10),
        Factor::Binary(_) => return None,
    };
    let power = power.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    if digits > digits_max || power < -9 {
        return None;
    }
    let number: i64 = format!("{whole}{fraction}").parse().ok()?;
    Some(Small { number: number.checked_mul(factor)?, power })
}

/// The quantity of these digits in units of 10⁻⁹: rounded up, and no larger than what 128 bits hold.
fn nanos(whole: &str, fraction: &str, factor: Factor) -> i128 {
    let (whole, fraction, unit) = match factor {
        Factor::Binary(bits) => (whole.to_owned(), fraction.to_owned(), NANOS << bits),
        Factor::Decimal(power) => {
            let (whole, fraction) = shifted(whole, fraction, power);
            (whole, fraction, NANOS)
        }
    };
    let mut nanos: i128 = 0;
    for digit in whole.bytes() {
        nanos = nanos.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
    }
    nanos = nanos.saturating_mul(unit);
    // From the last digit to the first, so that what is below a unit is known not to be nothing.
    let (mut below, mut rest) = (0, false);
    for digit in fraction.bytes().rev() {
        below += i128::from(digit - b'0') * unit;
        rest |= below % 10 != 0;
        below /= 10;
    }
    nanos = nanos.saturating_add(below).saturating_add(i128::from(rest));
    // Sizes of memory end where the 64 bits of a machine do.
    if matches!(factor, Factor::Binary(_)) { nanos.min(i128::from(i64::MAX) * NANOS) } else { nanos }
}

/// Digits with their point moved; what is farther than any digit that counts is moved no farther.
fn shifted(whole: &str, fraction: &str, places: i32) -> (String, String) {
    let (mut whole, mut fraction) = (whole.to_owned(), fraction.to_owned());
    let count = usize::try_from(places.unsigned_abs()).unwrap_or(usize::MAX);
    if places >= 0 {
        let moved = count.min(fraction.len());
        let rest = fraction.split_off(moved);
        whole.push_str(&fraction);
        whole.extend(std::iter::repeat_n('0', (count - moved).min(SHIFT_MAX)));
        return (whole, rest);
    }
    let moved = count.min(whole.len());
    let mut after = "0".repeat((count - moved).min(SHIFT_MAX));
    after.push_str(&whole.split_off(whole.len() - moved));
    after.push_str(&fraction);
    (whole, after)
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
