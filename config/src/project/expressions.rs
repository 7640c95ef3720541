//! The regular expressions of one object, and their limits.

use crate::model::{Comparison, Expression};

/// The regular expressions that an object holds, for the limits of several objects.
#[derive(Debug)]
pub struct HeldExpressions<'o> {
    /// The creation time of the object, in seconds since the Unix epoch.
    pub created_s: i64,
    /// At least one. Equal ones are repeated.
    pub all: Vec<&'o Expression>,
}

impl<'o> HeldExpressions<'o> {
    /// These expressions; `None` if there are none.
    pub(super) fn of(created_s: i64, expressions: impl Iterator<Item = &'o Expression>) -> Option<Self> {
        let all: Vec<&Expression> = expressions.collect();
        (!all.is_empty()).then_some(Self { created_s, all })
    }
}

/// The maximum memory of all expressions of one object, in bytes.
const BYTES_MAX: usize = 1 << 20;
/// The maximum work of compiling all expressions of one object; a unit takes a few nanoseconds at most.
const WORK_MAX: u64 = 32 << 20;

/// Compiles the expressions of one object in their order, as long as none of the limits is reached.
pub(super) struct Expressions {
    max: usize,
    left: usize,
    made: Vec<Expression>,
    bytes_left: usize,
    work_left: u64,
}

impl Expressions {
    /// At most this number of expressions.
    pub(super) const fn new(max: usize) -> Self {
        Self { max, left: max, made: Vec::new(), bytes_left: BYTES_MAX, work_left: WORK_MAX }
    }

    /// The next expression of the object. Equal ones are compiled once.
    ///
    /// # Errors
    /// Why it cannot be used, as a predicate.
    pub(super) fn compile(&mut self, pattern: &str, comparison: Comparison) -> Result<Expression, String> {
        let left = self.left.checked_sub(1);
        self.left = left.ok_or_else(|| format!("exceeds the limit of {} expressions", self.max))?;
        if let Some(made) = self.made.iter().find(|it| it.pattern() == pattern && it.comparison() == comparison) {
            return Ok(made.clone());
        }
        if self.work_left == 0 {
            return Err("comes after expressions that take too much work to compile".to_owned());
        }
        let made = Expression::new(pattern, comparison);
        self.take(made.as_ref().map_or_else(|fault| fault.work, Expression::work));
        let expression = made.map_err(|fault| fault.to_string())?;
        let bytes_left = self.bytes_left.checked_sub(expression.bytes());
        let exceeded = || format!("exceeds the limit of {BYTES_MAX} bytes of all expressions of one object");
        self.bytes_left = bytes_left.ok_or_else(exceeded)?;
        self.made.push(expression.clone());
        Ok(expression)
    }

    /// Checks a part of an expression that is put together from several.
    ///
    /// # Errors
    /// Why it cannot be used, as a predicate.
    pub(super) fn check(&mut self, pattern: &str) -> Result<(), String> {
        let checked = Expression::check(pattern);
        self.take(checked.as_ref().map_or_else(|fault| fault.work, |work| *work));
        checked.map(drop).map_err(|fault| fault.to_string())
    }

    const fn take(&mut self, work: u64) {
        self.work_left = self.work_left.saturating_sub(work);
    }
}
