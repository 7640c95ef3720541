//! The rules of one policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderName;
use serde_json::value::RawValue;

use super::condition::NamedPatterns;
use crate::finding::printable;
use crate::model::auth::{AuthCondition, AuthEntry, AuthRule, UnusableRule};
use crate::object::ObjectRef;
use crate::project::field::{FindingList, InvalidValue, read, written};
use crate::project::gateway::LabelSelector;
use crate::project::kuadrant::block::{EntriesField, RawBlock, SpecJson, check_count, check_names};
use crate::project::kuadrant::expressions::PolicyExpressions;
use crate::project::kuadrant::fields::Fields;
use crate::project::kuadrant::policy::{PolicyBlock, fault, reason};

/// Reads the rules of one policy.
pub(super) struct RuleReader<'a> {
    pub(super) policy: &'a ObjectRef,
    pub(super) shadow: bool,
    pub(super) findings: &'a mut FindingList,
    pub(super) expressions: PolicyExpressions<'a>,
    pub(super) patterns: NamedPatterns,
    /// The conditions of the policy, or the reason why they cannot be used, and so no rule can.
    pub(super) when: Result<Arc<[AuthCondition]>, String>,
    pub(super) entries: BTreeMap<Arc<str>, Arc<AuthEntry>>,
    /// The selectors of Secrets with API keys, by the keys of their entries.
    pub(super) api_keys: BTreeMap<Arc<str>, LabelSelector>,
    /// The reasons for what cannot be used.
    pub(super) unusable: Vec<String>,
}

/// The place of a rule in its policy.
#[derive(Clone)]
pub(super) struct Place {
    /// The key of its entry.
    pub(super) key: Arc<str>,
    /// Its name.
    pub(super) name: Arc<str>,
    /// Its field.
    pub(super) field: String,
    /// The header that it makes, if it makes one.
    pub(super) header: Option<HeaderName>,
}

/// How the part of a rule is read that is not in every rule.
type Read<'p, R> = fn(&mut RuleReader<'p>, &mut Fields<'_>, &Place) -> Result<R, InvalidValue>;

impl<'p> RuleReader<'p> {
    pub(super) fn block(&mut self, spec: &SpecJson<'_>) -> Result<PolicyBlock<AuthEntry>, InvalidValue> {
        let RawBlock { field, scope, strategy, entries, patterns, when } =
            spec.block(EntriesField::Rules, self.findings)?;
        self.read_patterns(patterns, &format!("{field}.patterns"))?;
        let when = self.conditions(when, &format!("{field}.when")).map_err(|invalid| self.report(&invalid));
        self.when = when.map(Into::into);
        let (rules, rules_field) = entries;
        let unread = self.rules(Fields::read(rules, &rules_field)?)?;
        check_count(self.entries.len(), "rules", &rules_field)?;
        if self.entries.is_empty() && !unread {
            return Err(fault(&rules_field, &written(rules), "has no rule"));
        }
        Ok(PolicyBlock { scope, strategy, entries: std::mem::take(&mut self.entries) })
    }

    /// Reads the sections of rules. Returns whether there are rules that restrict nothing, and are left out.
    fn rules(&mut self, mut fields: Fields<'_>) -> Result<bool, InvalidValue> {
        let at = |fields: &Fields<'_>, name: &str| fields.at(name);
        let section = (fields.take("authentication"), at(&fields, "authentication"));
        self.section("authentication", section, |reader, place, raw| {
            reader.rule(&place, raw, Self::authentication, AuthEntry::Authentication);
        })?;
        let section = (fields.take("metadata"), at(&fields, "metadata"));
        self.section("metadata", section, |reader, place, raw| {
            let what = unsupported(&place.field, raw);
            reader.leave_out(&place, &what);
        })?;
        let section = (fields.take("authorization"), at(&fields, "authorization"));
        self.section("authorization", section, |reader, place, raw| {
            reader.rule(&place, raw, Self::authorization, AuthEntry::Authorization);
        })?;
        if let Some(raw) = fields.take("response") {
            let field = fields.at("response");
            self.response(Fields::read(raw, &field)?)?;
        }
        let callbacks = fields.take("callbacks");
        if let Some(raw) = callbacks {
            let why = "callbacks are not supported yet; they neither allow nor refuse a request";
            self.findings.without_effect(&fields.at("callbacks"), &written(raw), why);
        }
        fields.end()?;
        Ok(callbacks.is_some())
    }

    /// Reads the rules of a section by name.
    pub(super) fn section(
        &mut self,
        key: &str,
        (raw, field): (Option<&RawValue>, String),
        mut each: impl FnMut(&mut Self, Place, &RawValue),
    ) -> Result<(), InvalidValue> {
        let Some(raw) = raw else { return Ok(()) };
        let rules: BTreeMap<String, &RawValue> = read(raw, &field)?;
        check_count(self.entries.len() + rules.len(), "rules", &field)?;
        check_names(&rules, &field)?;
        for (name, raw) in rules {
            let key = format!("{key}#{name}").into();
            let field = format!("{field}[{}]", printable(&name));
            each(self, Place { key, name: name.into(), field, header: None }, raw);
        }
        Ok(())
    }

    /// Reads a rule, whole or not at all: without one of its parts it would let other requests pass.
    pub(super) fn rule<R>(
        &mut self,
        place: &Place,
        raw: &RawValue,
        read: Read<'p, R>,
        entry: fn(Arc<AuthRule<R>>) -> AuthEntry,
    ) {
        let policy_when = match &self.when {
            Ok(when) => Arc::clone(when),
            // The policy has a finding for all of its rules.
            Err(why) => {
                let why = why.clone();
                return self.put_unusable(place, why);
            }
        };
        let read = self.whole_rule(place, raw, read, policy_when).and_then(|rule| {
            let entry = entry(Arc::new(rule));
            self.expressions.take_steps(entry.steps(), "rules", &place.field)?;
            Ok(entry)
        });
        match read {
            Ok(entry) => drop(self.entries.insert(Arc::clone(&place.key), Arc::new(entry))),
            Err(invalid) => self.leave_out(place, &invalid),
        }
    }

    fn whole_rule<R>(
        &mut self,
        place: &Place,
        raw: &RawValue,
        read: Read<'p, R>,
        policy_when: Arc<[AuthCondition]>,
    ) -> Result<AuthRule<R>, InvalidValue> {
        let mut fields = Fields::read(raw, &place.field)?;
        let priority = fields.value("priority")?.unwrap_or_default();
        let when = fields.take("when");
        let when = self.conditions(when, &fields.at("when"))?.into();
        self.without_effect(&mut fields)?;
        let rule = read(self, &mut fields, place)?;
        fields.end()?;
        let (policy, name, shadow) = (self.policy.clone(), Arc::clone(&place.name), self.shadow);
        Ok(AuthRule { policy, name, priority, policy_when, when, shadow, cache: None, rule })
    }

    /// Fields of every rule that restrict nothing.
    fn without_effect(&mut self, fields: &mut Fields<'_>) -> Result<(), InvalidValue> {
        if fields.value::<bool>("metrics")? == Some(true) {
            let why = "every rule has the same metrics";
            self.findings.without_effect(&fields.at("metrics"), "true", why);
        }
        if let Some(raw) = fields.take("cache") {
            let why = "the rule is evaluated for each request, which costs little";
            self.findings.without_effect(&fields.at("cache"), &written(raw), why);
        }
        Ok(())
    }

    /// Puts an entry that refuses every request in the place of a rule that cannot be used. Its key takes part in
    /// merges like any other.
    pub(super) fn leave_out(&mut self, place: &Place, invalid: &InvalidValue) {
        let why = self.report(invalid);
        self.put_unusable(place, why);
    }

    fn put_unusable(&mut self, place: &Place, why: String) {
        // The keys of its Secrets are of no use.
        self.api_keys.remove(&place.key);
        let rule = AuthRule {
            policy: self.policy.clone(),
            name: Arc::clone(&place.name),
            priority: 0,
            policy_when: Arc::default(),
            when: Box::default(),
            shadow: self.shadow,
            cache: None,
            rule: UnusableRule { why, header: place.header.clone() },
        };
        self.entries.insert(Arc::clone(&place.key), Arc::new(AuthEntry::Unusable(Arc::new(rule))));
    }

    /// Reports what cannot be used, and returns the reason in one line.
    pub(super) fn report(&mut self, invalid: &InvalidValue) -> String {
        self.findings.access_closed(invalid);
        let why = reason(invalid);
        self.unusable.push(why.clone());
        why
    }
}

/// A rule, or a form of one, that is known and not supported.
pub(super) fn unsupported(field: &str, raw: &RawValue) -> InvalidValue {
    fault(field, &written(raw), "is not supported yet")
}
