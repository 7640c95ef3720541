//! The rules of one policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderName;
use serde_json::value::RawValue;

use super::cache::RuleAction;
use super::call::RuleSecret;
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

/// Entries by their keys.
pub(super) type Entries = BTreeMap<Arc<str>, Arc<AuthEntry>>;

/// Reads the rules of one policy.
pub(super) struct RuleReader<'a> {
    pub(super) policy: &'a ObjectRef,
    pub(super) shadow: bool,
    pub(super) findings: &'a mut FindingList,
    pub(super) expressions: PolicyExpressions<'a>,
    pub(super) patterns: NamedPatterns,
    /// The conditions of the policy, or the reason why they cannot be used, and so no rule can.
    pub(super) when: Result<Arc<[AuthCondition]>, String>,
    pub(super) entries: Entries,
    /// The selectors of Secrets with API keys, by the keys of their entries.
    pub(super) api_keys: BTreeMap<Arc<str>, LabelSelector>,
    /// The Secrets that rules read, by the keys of their entries.
    pub(super) secrets: BTreeMap<Arc<str>, RuleSecret>,
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

/// How a rule is read, and the entry that it becomes.
struct Form<'p, R> {
    read: Read<'p, R>,
    entry: fn(Arc<AuthRule<R>>) -> AuthEntry,
}

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
            reader.rule(&place, raw, Self::metadata, AuthEntry::Metadata);
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
        self.section("callbacks", (callbacks, at(&fields, "callbacks")), |reader, place, raw| {
            reader.without_verdict(&place, raw, Self::callback, AuthEntry::Callback);
        })?;
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

    /// Reads a rule. One that cannot be used refuses every request.
    pub(super) fn rule<R: RuleAction>(
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
        if let Err(invalid) = self.entry(place, raw, policy_when, Form { read, entry }) {
            self.leave_out(place, &invalid);
        }
    }

    /// Reads a rule that neither allows nor refuses a request. One that cannot be used is left out.
    fn without_verdict<R: RuleAction>(
        &mut self,
        place: &Place,
        raw: &RawValue,
        read: Read<'p, R>,
        entry: fn(Arc<AuthRule<R>>) -> AuthEntry,
    ) {
        let Ok(policy_when) = &self.when else { return };
        if let Err(invalid) = self.entry(place, raw, Arc::clone(policy_when), Form { read, entry }) {
            self.forget(place);
            self.findings.invalid(&invalid);
        }
    }

    /// Reads a rule, whole or not at all: without one of its parts it would let other requests pass.
    fn entry<R: RuleAction>(
        &mut self,
        place: &Place,
        raw: &RawValue,
        policy_when: Arc<[AuthCondition]>,
        form: Form<'p, R>,
    ) -> Result<(), InvalidValue> {
        let rule = self.whole_rule(place, raw, form.read, policy_when)?;
        let entry = (form.entry)(Arc::new(rule));
        self.expressions.take_steps(entry.steps(), "rules", &place.field)?;
        self.entries.insert(Arc::clone(&place.key), Arc::new(entry));
        Ok(())
    }

    fn whole_rule<R: RuleAction>(
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
        if fields.value::<bool>("metrics")? == Some(true) {
            let why = "every rule has the same metrics";
            self.findings.without_effect(&fields.at("metrics"), "true", why);
        }
        let (cache, cache_field) = (fields.take("cache"), fields.at("cache"));
        let rule = read(self, &mut fields, place)?;
        fields.end()?;
        let cache = cache.map(|cache| self.cache(cache, &cache_field, &rule, place, raw));
        let (policy, name, shadow) = (self.policy.clone(), Arc::clone(&place.name), self.shadow);
        Ok(AuthRule { policy, name, priority, policy_when, when, shadow, cache: cache.transpose()?.flatten(), rule })
    }

    /// Puts an entry that refuses every request in the place of a rule that cannot be used. Its key takes part in
    /// merges like any other.
    pub(super) fn leave_out(&mut self, place: &Place, invalid: &InvalidValue) {
        let why = self.report(invalid);
        self.put_unusable(place, why);
    }

    fn put_unusable(&mut self, place: &Place, why: String) {
        self.forget(place);
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

    /// The Secrets of a rule that cannot be used are of no use.
    fn forget(&mut self, place: &Place) {
        self.api_keys.remove(&place.key);
        self.secrets.remove(&place.key);
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
