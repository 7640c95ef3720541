//! RateLimitPolicy (`kuadrant.io/v1`): limits of requests.
//!
//! Two things can be wrong with a policy. If its block of limits, or the name of one, cannot be read, it is invalid as
//! a whole: it limits nothing and takes part in no merge. If a single limit cannot be used, that limit does nothing,
//! and its name still takes part in the merge: an override does not disappear because an expression of it does not
//! compile. A condition of the policy that cannot be used leaves out all of its limits in this way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::block::{EntriesField, RawBlock, SpecJson, check_count, check_names};
use super::expressions::PolicyExpressions;
use super::policy::{PolicyBlock, PolicyTargetRef, fault, head, reason, target};
use crate::model::{Expression, Limit, LimitId, Predicate, Rate, ValueExpression};
use crate::object::{Age, ObjectRef};
use crate::project::expressions::HeldExpressions;
use crate::project::field::{FindingList, InvalidValue, read, read_or_default, written};
use crate::project::gateway::duration::duration;
use crate::project::gateway::header_edits::within;
use crate::project::raw_object::RawObject;
use crate::project::{Projection, Sharing};

/// The maximum number of rates of one limit.
const RATES_MAX: usize = 10;
/// The maximum number of predicates of one `when`.
const PREDICATES_MAX: usize = 10;
/// The maximum number of counter expressions of one limit.
const COUNTERS_MAX: usize = 10;

/// The parts of a RateLimitPolicy that routing reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateLimitPolicy {
    /// Its name and age.
    pub age: Age,
    /// `spec.targetRef`, or the reason why it cannot be used.
    pub target: Result<PolicyTargetRef, String>,
    /// The limits, or the reason why the specification contradicts itself or cannot be read. A limit without rates, or
    /// one that is left out, is an entry with no rates.
    pub limits: Result<PolicyBlock<Limit>, String>,
    /// The reasons for limits that are left out because an expression or another part of theirs cannot be used.
    pub left_out: Box<[String]>,
    /// Whether it is being deleted: it limits nothing and takes part in no merge, while its finalizers run.
    pub is_being_deleted: bool,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct LimitJson<'a> {
    #[serde(borrow)]
    when: Option<&'a RawValue>,
    #[serde(borrow)]
    counters: Option<&'a RawValue>,
    #[serde(borrow)]
    rates: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct PredicateJson {
    predicate: String,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct CounterJson {
    expression: String,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct RateJson {
    limit: i64,
    window: String,
}

impl RateLimitPolicy {
    /// The reason why it is not accepted, whatever objects there are.
    #[must_use]
    pub fn invalid(&self) -> Option<&str> {
        let (limits, target) = (self.limits.as_ref().err(), self.target.as_ref().err());
        limits.or(target).map(String::as_str)
    }
}

impl Sharing for RateLimitPolicy {}

impl Projection for RateLimitPolicy {
    /// The fields with an expression: compiling one takes time, whether it has a pattern or not.
    const EXPRESSION_MARKS: &'static [&'static str] = &["\"predicate\"", "\"expression\""];

    /// A policy that cannot be read is a projection too, so that its status can say so.
    fn project(source: &RawObject<'_>, findings: &mut FindingList) -> Result<Self, InvalidValue> {
        let ((age, effects), is_being_deleted) = (head(source, findings), source.is_being_deleted);
        let spec = match SpecJson::read(source.spec) {
            Ok(spec) => spec,
            Err(invalid) => {
                let why = invalid_policy(&invalid, findings);
                let (target, limits, left_out) = (Err(why.clone()), Err(why), Box::default());
                return Ok(Self { age, target, limits, left_out, is_being_deleted });
            }
        };
        let target = target(spec.target_ref, source.name()).map_err(|invalid| invalid_policy(&invalid, findings));
        let mut reader = LimitReader {
            policy: &source.meta.object,
            shadow: effects.shadow,
            findings,
            expressions: PolicyExpressions::new(source.compiling),
            left_out: Vec::new(),
        };
        let limits = reader.block(&spec);
        let left_out = reader.left_out.into();
        let limits = limits.map_err(|invalid| invalid_policy(&invalid, findings));
        Ok(Self { age, target, limits, left_out, is_being_deleted })
    }

    fn expressions(&self) -> Option<HeldExpressions<'_>> {
        let limits = self.limits.iter().flat_map(|block| block.entries.values());
        HeldExpressions::of(self.age.created_s, limits.flat_map(|limit| patterns_of(limit)))
    }

    /// The names of the limits stay, like those of other limits that cannot be used.
    fn leave_out_expressions(&mut self, why: &str, findings: &mut FindingList) {
        let Ok(block) = &mut self.limits else { return };
        let mut left_out = self.left_out.to_vec();
        for (name, limit) in &mut block.entries {
            let Some(pattern) = patterns_of(limit).next() else { continue };
            let invalid = fault(&format!("limits[{name}]"), pattern.pattern(), why);
            findings.limit_not_enforced(&invalid);
            left_out.push(reason(&invalid));
            *limit = Arc::new(LimitParts::default().into_limit(limit.id.clone(), limit.shadow));
        }
        self.left_out = left_out.into();
    }
}

/// The patterns in the expressions of a limit.
fn patterns_of(limit: &Limit) -> impl Iterator<Item = &Expression> {
    let of_counters = limit.counters.iter().flat_map(ValueExpression::patterns);
    limit.when.iter().flat_map(Predicate::patterns).chain(of_counters)
}

fn invalid_policy(invalid: &InvalidValue, findings: &mut FindingList) -> String {
    findings.policy_not_enforced(invalid);
    reason(invalid)
}

/// Reads the limits of one policy.
struct LimitReader<'a> {
    policy: &'a ObjectRef,
    shadow: bool,
    findings: &'a mut FindingList,
    expressions: PolicyExpressions<'a>,
    left_out: Vec<String>,
}

impl LimitReader<'_> {
    fn block(&mut self, spec: &SpecJson<'_>) -> Result<PolicyBlock<Limit>, InvalidValue> {
        let RawBlock { field, scope, strategy, entries, when, .. } = spec.block(EntriesField::Limits, self.findings)?;
        let (limits, limits_field) = entries;
        let limits: BTreeMap<String, &RawValue> = read(limits, &limits_field)?;
        if limits.is_empty() {
            return Err(fault(&limits_field, "{}", "has no limit"));
        }
        check_count(limits.len(), "limits", &limits_field)?;
        check_names(&limits, &limits_field)?;
        let when_field = format!("{field}.when");
        let when = self.predicates(when, &when_field).map_err(|invalid| {
            self.findings.policy_not_enforced(&invalid);
            self.left_out.push(reason(&invalid));
        });
        let entries = limits.into_iter().map(|(name, raw)| {
            let name: Arc<str> = name.into();
            let field = format!("{limits_field}[{name}]");
            let limit = when.as_ref().ok().and_then(|when| self.limit(raw, &field, when));
            let id = LimitId::new(self.policy.clone(), Arc::clone(&name));
            let limit = limit.unwrap_or_default().into_limit(id, self.shadow);
            (name, Arc::new(limit))
        });
        Ok(PolicyBlock { scope, strategy, entries: entries.collect() })
    }

    /// Reads a limit, whole or not at all: without a predicate it would count other requests, and without a counter it
    /// would count those of all clients together.
    fn limit(&mut self, raw: &RawValue, field: &str, when: &[Predicate]) -> Option<LimitParts> {
        let parts = self.parts(raw, field, when).map_err(|invalid| {
            self.findings.limit_not_enforced(&invalid);
            self.left_out.push(reason(&invalid));
        });
        let parts = parts.ok()?;
        if parts.rates.is_empty() {
            self.findings.without_effect(field, &written(raw), "it has no rates");
        }
        Some(parts)
    }

    fn parts(&mut self, raw: &RawValue, field: &str, when: &[Predicate]) -> Result<LimitParts, InvalidValue> {
        let json: LimitJson<'_> = read(raw, field)?;
        let own = self.predicates(json.when, &format!("{field}.when"))?;
        let counters = self.counters(json.counters, &format!("{field}.counters"))?;
        let rates = rates(json.rates, &format!("{field}.rates"), self.findings)?;
        let parts = LimitParts { when: when.iter().cloned().chain(own).collect(), counters, rates };
        self.charge(&parts, field)?;
        Ok(parts)
    }

    /// Takes the steps of the expressions of a limit from those of the policy. The conditions of the policy are
    /// evaluated for each of its limits, and a limit without rates is never evaluated.
    fn charge(&mut self, parts: &LimitParts, field: &str) -> Result<(), InvalidValue> {
        if parts.rates.is_empty() {
            return Ok(());
        }
        let steps = parts.when.iter().map(Predicate::steps).chain(parts.counters.iter().map(ValueExpression::steps));
        let steps = steps.fold(0, u32::saturating_add);
        self.expressions.take_steps(steps, "limits", field)
    }

    fn predicates(&mut self, raw: Option<&RawValue>, field: &str) -> Result<Vec<Predicate>, InvalidValue> {
        let list: Vec<PredicateJson> = read_or_default(raw, field)?;
        let list = within(Some(list), PREDICATES_MAX, field)?.into_iter().enumerate();
        list.map(|(number, PredicateJson { predicate })| {
            self.expressions.predicate(&predicate, &format!("{field}[{number}].predicate"))
        })
        .collect()
    }

    fn counters(&mut self, raw: Option<&RawValue>, field: &str) -> Result<Box<[ValueExpression]>, InvalidValue> {
        let list: Vec<CounterJson> = read_or_default(raw, field)?;
        let list = within(Some(list), COUNTERS_MAX, field)?.into_iter().enumerate();
        list.map(|(number, CounterJson { expression })| {
            self.expressions.value(&expression, &format!("{field}[{number}].expression"))
        })
        .collect()
    }
}

/// The parts of a limit that its policy writes in it; by default it does nothing.
#[derive(Default)]
struct LimitParts {
    when: Box<[Predicate]>,
    counters: Box<[ValueExpression]>,
    rates: Box<[Rate]>,
}

impl LimitParts {
    fn into_limit(self, id: LimitId, shadow: bool) -> Limit {
        let Self { when, counters, rates } = self;
        Limit { id, when, counters, rates, shadow }
    }
}

/// Reads rates, no two with the same window: of such two, the lower one refuses every request that the other refuses.
fn rates(raw: Option<&RawValue>, field: &str, findings: &mut FindingList) -> Result<Box<[Rate]>, InvalidValue> {
    let list: Vec<RateJson> = read_or_default(raw, field)?;
    let mut rates: Vec<Rate> = Vec::new();
    let mut fields: Vec<String> = Vec::new();
    for (number, json) in within(Some(list), RATES_MAX, field)?.into_iter().enumerate() {
        let mut field = format!("{field}[{number}]");
        let mut rate = rate(&json, &field)?;
        let same = rates.iter_mut().zip(&mut fields).find(|(known, _)| known.window == rate.window);
        let Some((known, known_field)) = same else {
            rates.push(rate);
            fields.push(field);
            continue;
        };
        if rate.max < known.max {
            std::mem::swap(known, &mut rate);
            std::mem::swap(known_field, &mut field);
        }
        let why = format!("{known_field} has the same window, and no more requests");
        findings.without_effect(&field, &rate.max.to_string(), why);
    }
    Ok(rates.into())
}

/// A negative number of requests counts as 0, as in Kuadrant, and one above the maximum as the maximum.
fn rate(json: &RateJson, field: &str) -> Result<Rate, InvalidValue> {
    let field = format!("{field}.window");
    let window = duration(&json.window).map_err(|why| fault(&field, &json.window, why))?;
    if window == Duration::ZERO {
        return Err(fault(&field, &json.window, "is zero"));
    }
    Ok(Rate { max: u32::try_from(json.limit.max(0)).unwrap_or(u32::MAX), window })
}
