//! The expressions of one policy. Their steps and the memory of their patterns are limited together.

use crate::model::{Comparison, Expression, Extent, Predicate, RegexCase, Subject, ValueExpression};
use crate::project::expressions::{Compiling, Expressions};
use crate::project::field::InvalidValue;
use crate::project::kuadrant::policy::fault;

/// The maximum number of different patterns of `matches` in all expressions of one policy.
const PATTERNS_MAX: usize = 128;
/// The maximum number of steps of all expressions of one policy for a request: about 1 ms.
const STEPS_MAX: u32 = 8192;

/// Compiles the expressions of one policy.
pub(super) struct PolicyExpressions<'a> {
    patterns: Expressions<'a>,
    /// The steps that the entries so far leave of those of the policy.
    steps_left: u32,
}

impl<'a> PolicyExpressions<'a> {
    pub(super) const fn new(compiling: Compiling<'a>) -> Self {
        Self { patterns: Expressions::new(PATTERNS_MAX, compiling), steps_left: STEPS_MAX }
    }

    pub(super) fn predicate(&mut self, source: &str, field: &str) -> Result<Predicate, InvalidValue> {
        self.compile(source, |source, keep| Predicate::with_patterns(source, keep))
            .map_err(|why| unusable(field, source, &why))
    }

    pub(super) fn value(&mut self, source: &str, field: &str) -> Result<ValueExpression, InvalidValue> {
        self.compile(source, |source, keep| ValueExpression::with_patterns(source, keep))
            .map_err(|why| unusable(field, source, &why))
    }

    /// A regular expression that a part of a text has to match.
    pub(super) fn pattern(&mut self, source: &str, field: &str) -> Result<Expression, InvalidValue> {
        let comparison = Comparison { subject: Subject::Value, case: RegexCase::Sensitive, extent: Extent::Anywhere };
        self.patterns.compile(source, comparison).map_err(|why| fault(field, source, &why))
    }

    fn compile<T>(
        &mut self,
        source: &str,
        compile: impl FnOnce(&str, &mut dyn FnMut(&mut Expression) -> Result<(), String>) -> Result<T, String>,
    ) -> Result<T, String> {
        if self.patterns.is_spent() && source.contains("matches") {
            return Err("the patterns before it in the policy take all that a policy may use".to_owned());
        }
        compile(source, &mut |pattern| {
            self.patterns.share(pattern).map_err(|why| format!("the pattern {:?} {why}", pattern.pattern()))
        })
    }

    /// Takes the steps of an entry from those of the policy. `what` is the plural of entries.
    pub(super) fn take_steps(&mut self, steps: u32, what: &str, field: &str) -> Result<(), InvalidValue> {
        let left = self.steps_left.checked_sub(steps).ok_or_else(|| {
            let why = format!("exceed the {} that the {what} before it leave of {STEPS_MAX}", self.steps_left);
            fault(field, &format!("{steps} steps"), &why)
        });
        self.steps_left = left?;
        Ok(())
    }
}

fn unusable(field: &str, expression: &str, why: &str) -> InvalidValue {
    fault(field, expression, &format!("is not a usable expression ({why})"))
}
