//! The reader of rules and their matches, with its limits, for HTTPRoute and GRPCRoute.

use serde_json::value::RawValue;

use crate::model::Expression;
use crate::object::{ObjectName, Uid};
use crate::project::expressions::Expressions;
use crate::project::field::{FindingList, InvalidValue};
use crate::project::raw_object::RawObject;

/// The maximum number of rules of one route.
const RULES_MAX: usize = 16;
/// The maximum number of matches of one rule.
const RULE_MATCHES_MAX: usize = 64;
/// The maximum number of matches of all rules of a route.
const MATCHES_MAX: usize = 128;

/// The type of a match by an expression.
pub(super) const REGULAR_EXPRESSION: &str = "RegularExpression";
/// The maximum number of expressions of a route.
const EXPRESSIONS_MAX: usize = 128;

/// A rule of a route.
pub(super) trait Rule {
    /// Its index in `spec.rules`.
    fn index(&self) -> usize;
    /// The expressions of each of its matches.
    fn expressions(&self) -> impl Iterator<Item = Vec<&Expression>>;
}

/// Moves the rules with an expression in a match to those that are dropped; `why` is a predicate.
pub(super) fn leave_out_expressions<R: Rule>(
    rules: &mut Box<[R]>,
    dropped: &mut Box<[usize]>,
    why: &str,
    findings: &mut FindingList,
) {
    let (mut left, mut out) = (Vec::new(), dropped.to_vec());
    for rule in std::mem::take(rules) {
        let index = rule.index();
        let first = rule.expressions().enumerate().find_map(|(number, all)| Some((number, *all.first()?)));
        if let Some((number, expression)) = first {
            findings.dropped(&format!("spec.rules[{index}].matches[{number}]"), expression.pattern(), why);
            out.push(index);
        } else {
            left.push(rule);
        }
    }
    out.sort_unstable();
    (*rules, *dropped) = (left.into(), out.into());
}

/// The common state of reading the rules of one route.
pub(super) struct Rules<'r> {
    /// The route.
    pub(super) own: &'r ObjectName,
    /// Its uid.
    pub(super) uid: Option<Uid>,
    expressions: Expressions<'r>,
    matches_left: usize,
    pub(super) findings: &'r mut FindingList,
}

impl<'r> Rules<'r> {
    /// The state before the first rule.
    pub(super) fn of(route: &'r RawObject<'_>, findings: &'r mut FindingList) -> Self {
        let (own, uid, expressions) =
            (route.name(), route.meta.uid, Expressions::new(EXPRESSIONS_MAX, route.compiling));
        Self { own, uid, expressions, matches_left: MATCHES_MAX, findings }
    }

    /// The valid rules, and the indexes of the invalid ones.
    pub(super) fn read<R>(
        mut self,
        list: Option<Vec<&RawValue>>,
        rule: impl Fn(&mut Self, &RawValue, &str, usize) -> Result<R, InvalidValue>,
    ) -> (Box<[R]>, Box<[usize]>) {
        let (mut rules, mut dropped) = (Vec::new(), Vec::new());
        for (index, (field, raw)) in self.findings.entries(list, RULES_MAX, "spec.rules").enumerate() {
            match rule(&mut self, raw, &field, index) {
                Ok(rule) => rules.push(rule),
                Err(invalid) => {
                    self.findings.invalid(&invalid);
                    dropped.push(index);
                }
            }
        }
        (rules.into(), dropped.into())
    }

    /// The matches of a rule; without any, `every`. An invalid match drops the rule. Matches beyond the limits are left
    /// out, unless that leaves none.
    pub(super) fn matches<M>(
        &mut self,
        list: Option<Vec<&RawValue>>,
        field: &str,
        every: impl Fn() -> M,
        one: impl Fn(&RawValue, &str, &mut Expressions<'_>, &mut FindingList) -> Result<M, InvalidValue>,
    ) -> Result<Box<[M]>, InvalidValue> {
        let list = list.unwrap_or_default();
        if list.is_empty() {
            return Ok([every()].into());
        }
        let (field, limit) = (format!("{field}.matches"), RULE_MATCHES_MAX.min(self.matches_left));
        if limit == 0 {
            let value = format!("{} entries", list.len());
            let why = format!("exceed the limit of {MATCHES_MAX} of all rules");
            return Err(InvalidValue { field, value, why });
        }
        let entries = self.findings.entries(Some(list), limit, &field);
        let matches: Vec<M> = entries
            .map(|(field, raw)| one(raw, &field, &mut self.expressions, self.findings))
            .collect::<Result<_, _>>()?;
        self.matches_left = self.matches_left.saturating_sub(matches.len());
        Ok(matches.into())
    }
}
