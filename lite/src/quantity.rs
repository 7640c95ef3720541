//! Quantities of resources, such as `1.5Gi` and `200m`
//! (<https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>).
//!
//! No crate that is kept knows them exactly. Here a quantity is a whole number of its smallest unit, 10⁻⁹, in 128 bits;
//! one above 1.7 · 10²⁹ counts as that. The real server keeps most as a number of 64 bits and a power of ten besides,
//! and takes only those without a fraction in that form for integers; so this form is kept too.

const FORM: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX: &str = "unable to parse quantity's suffix";

/// Units of 10⁻⁹ in one.
pub(crate) const NANOS: i128 = 1_000_000_000;
/// The maximum number of places by which a number is shifted: more are beyond its precision.
const SHIFT_MAX: usize = 64;

/// A quantity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    pub(crate) nanos: i128,
    pub(crate) small: Option<Small>,
}

/// A number, and the power of ten that it is multiplied by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Small {
    pub(crate) number: i64,
    pub(crate) power: i32,
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

/// The factor of a suffix.
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
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
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

    pub(crate) fn plus(self, other: Self) -> Self {
        let small = self.small.zip(other.small).and_then(|(one, other)| one.plus(other));
        Self { nanos: self.nanos.saturating_add(other.nanos), small }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        let negative = |small: Small| Some(Small { number: small.number.checked_neg()?, ..small });
        self.plus(Self { nanos: other.nanos.saturating_neg(), small: other.small.and_then(negative) })
    }

    pub(crate) fn integer(self) -> Option<i64> {
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

/// The quantity of these digits in units of 10⁻⁹: rounded up, and at most the largest value of 128 bits.
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
    // From the last digit to the first, so that a nonzero remainder below a unit is noticed.
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

/// Digits with their point moved, at most past the last significant digit.
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

/// The notation of a quantity: the real server keeps it when it writes the quantity again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Notation {
    /// `1Gi`.
    Binary,
    /// `1G`.
    Decimal,
    /// `1e9`.
    Exponent,
}

impl Notation {
    fn of(text: &str) -> Self {
        match text.find(|one: char| !one.is_ascii_digit() && !matches!(one, '+' | '-' | '.')) {
            Some(_) if text.ends_with('i') => Self::Binary,
            Some(at) if text[at..].starts_with(['e', 'E']) && at + 1 < text.len() => Self::Exponent,
            Some(_) | None => Self::Decimal,
        }
    }
}

/// The text by which the real server writes a quantity: `1024Mi` as `1Gi`, `0.5` as `500m`.
pub(crate) fn canonical(text: &str) -> Result<String, &'static str> {
    Quantity::parse(text).map(|quantity| write(quantity.nanos, text))
}

/// The same, rounded up to thousandths, as limits and requests of containers are.
pub(crate) fn canonical_in_thousandths(text: &str) -> Result<String, &'static str> {
    const NANOS_OF_THOUSANDTH: i128 = NANOS / 1_000;
    let nanos = Quantity::parse(text)?.nanos;
    Ok(write(round_up(nanos, NANOS_OF_THOUSANDTH).saturating_mul(NANOS_OF_THOUSANDTH), text))
}

/// How many units a number is, the last one not whole, away from zero.
fn round_up(number: i128, unit: i128) -> i128 {
    number / unit + if number % unit == 0 { 0 } else { number.signum() }
}

/// Writes a quantity in the notation of a text.
fn write(nanos: i128, text: &str) -> String {
    const BINARY: &[&str] = &["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const DECIMAL: &[&str] = &["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    // A value beyond the type has lost its digits.
    if nanos.unsigned_abs() >= i128::MAX.unsigned_abs() {
        return text.to_owned();
    }
    let reduced = |number: i128, base: i128, units: usize| {
        let (mut number, mut unit) = (number, 0);
        while number != 0 && number % base == 0 && unit + 1 < units {
            (number, unit) = (number / base, unit + 1);
        }
        (number, unit)
    };
    let notation = Notation::of(text);
    if nanos == 0 {
        return "0".to_owned();
    }
    if notation == Notation::Binary && nanos.abs() > 1024 * NANOS - 1 {
        let (number, unit) = reduced(round_up(nanos, NANOS), 1024, BINARY.len());
        return format!("{number}{}", BINARY[unit]);
    }
    let (number, unit) = reduced(nanos, 1_000, DECIMAL.len());
    match (notation, i32::try_from(unit).unwrap_or_default() * 3 - 9) {
        (Notation::Exponent, 0) => number.to_string(),
        (Notation::Exponent, power) => format!("{number}e{power}"),
        (Notation::Binary | Notation::Decimal, _) => format!("{number}{}", DECIMAL[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_as_the_real_server_does() {
        for (text, canonical) in [
            ("1000m", "1"),
            ("1024Mi", "1Gi"),
            ("0.5Gi", "512Mi"),
            ("1.5Gi", "1536Mi"),
            ("1023Ki", "1023Ki"),
            ("0.5Ki", "512"),
            ("1", "1"),
            ("1.5", "1500m"),
            ("1e3", "1e3"),
            ("5E3", "5e3"),
            ("100e-2", "1"),
            ("2000", "2k"),
            ("1500k", "1500k"),
            ("12E", "12E"),
            ("+2", "2"),
            ("-0.5", "-500m"),
            ("0Ki", "0"),
            ("0.0000000001", "1n"),
        ] {
            assert_eq!(super::canonical(text).as_deref(), Ok(canonical), "{text}");
        }
        assert_eq!(canonical_in_thousandths("0.0001").as_deref(), Ok("1m"));
        assert_eq!(canonical("1g"), Err(FORM));
        assert_eq!(canonical("1Kii"), Err(SUFFIX));
    }
}
