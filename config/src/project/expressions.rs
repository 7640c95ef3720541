//! The regular expressions of one object, and their limits; and those of the objects of one list.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{Comparison, Expression};

/// The maximum memory of the expressions of one namespace in bytes, where equal ones count once: some thousands of
/// usual ones.
pub const NAMESPACE_EXPRESSION_BYTES_MAX: usize = 16 << 20;
/// The maximum memory of all expressions in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 128 << 20;

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

/// How the expressions of an object are made; by default, each is compiled.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Compiling<'p> {
    /// Those in it are not compiled again.
    pool: Option<&'p ExpressionPool>,
    /// Why others cannot be used, as a predicate.
    refusal: Option<&'static str>,
}

/// The expressions of the objects of one list: equal ones are compiled once, and their memory is limited. The limits
/// are twice those of stored objects, of which the oldest have precedence; a list is in the order of names.
#[derive(Debug, Default)]
pub struct ExpressionPool {
    all: BTreeMap<Comparison, BTreeMap<Box<str>, Expression>>,
    bytes: usize,
    by_namespace: BTreeMap<Arc<str>, usize>,
}

impl ExpressionPool {
    /// Adds the expressions of an object.
    pub fn add(&mut self, namespace: &Arc<str>, held: &HeldExpressions<'_>) {
        for expression in &held.all {
            let of_comparison = self.all.entry(expression.comparison()).or_default();
            if !of_comparison.contains_key(expression.pattern()) {
                of_comparison.insert(expression.pattern().into(), Expression::clone(expression));
                self.bytes += expression.bytes();
                *self.by_namespace.entry(Arc::clone(namespace)).or_default() += expression.bytes();
            }
        }
    }

    /// How the expressions of the next object of a namespace are made.
    pub(super) fn compiling(&self, namespace: &str) -> Compiling<'_> {
        let of_namespace = self.by_namespace.get(namespace).copied().unwrap_or_default();
        let refusal = if of_namespace > 2 * NAMESPACE_EXPRESSION_BYTES_MAX {
            Some("comes after expressions of its namespace that need too much memory")
        } else {
            (self.bytes > 2 * EXPRESSION_BYTES_MAX).then_some("comes after expressions that need too much memory")
        };
        Compiling { pool: Some(self), refusal }
    }

    fn get(&self, pattern: &str, comparison: Comparison) -> Option<&Expression> {
        self.all.get(&comparison)?.get(pattern)
    }
}

/// The maximum memory of all expressions of one object, in bytes.
const BYTES_MAX: usize = 1 << 20;
/// The maximum work of compiling all expressions of one object; a unit takes a few nanoseconds at most.
const WORK_MAX: u64 = 32 << 20;

/// Compiles the expressions of one object in their order, as long as none of the limits is reached.
pub(super) struct Expressions<'p> {
    compiling: Compiling<'p>,
    max: usize,
    left: usize,
    made: Vec<Expression>,
    bytes_left: usize,
    work_left: u64,
}

impl<'p> Expressions<'p> {
    /// At most this number of expressions.
    pub(super) const fn new(max: usize, compiling: Compiling<'p>) -> Self {
        Self { compiling, max, left: max, made: Vec::new(), bytes_left: BYTES_MAX, work_left: WORK_MAX }
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
        let Compiling { pool, refusal } = self.compiling;
        if let Some(made) = pool.and_then(|pool| pool.get(pattern, comparison)) {
            return self.keep(made.clone());
        }
        if let Some(why) = refusal {
            return Err(why.to_owned());
        }
        if self.work_left == 0 {
            return Err("comes after expressions that take too much work to compile".to_owned());
        }
        let made = Expression::new(pattern, comparison);
        self.take(made.as_ref().map_or_else(|fault| fault.work, Expression::work));
        self.keep(made.map_err(|fault| fault.to_string())?)
    }

    /// Keeps an expression of the object that is compiled already, or replaces it by the equal one that is kept.
    ///
    /// # Errors
    /// Why it cannot be used, as a predicate.
    pub(super) fn share(&mut self, expression: &mut Expression) -> Result<(), String> {
        let known = self.made.iter().find(|it| *it == expression);
        if let Some(made) = known {
            made.clone_into(expression);
            return Ok(());
        }
        let left = self.left.checked_sub(1);
        self.left = left.ok_or_else(|| format!("exceeds the limit of {} expressions", self.max))?;
        let Compiling { pool, refusal } = self.compiling;
        if let Some(made) = pool.and_then(|pool| pool.get(expression.pattern(), expression.comparison())) {
            made.clone_into(expression);
        } else if let Some(why) = refusal {
            return Err(why.to_owned());
        } else {
            self.take(expression.work());
        }
        self.keep(expression.clone()).map(drop)
    }

    /// Whether no other expression can be used, so that none needs to be compiled.
    pub(super) const fn is_spent(&self) -> bool {
        self.left == 0 || self.work_left == 0 || self.compiling.refusal.is_some()
    }

    fn keep(&mut self, expression: Expression) -> Result<Expression, String> {
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
