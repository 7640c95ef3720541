//! AuthPolicy (`kuadrant.io/v1`): who may send which requests.
//!
//! A policy without one of its restrictions would let requests pass that its author wants refused. So a rule that
//! cannot be used, with all that belongs to it, becomes an entry that refuses every request; its name still takes part
//! in merges. A policy whose rules cannot be read at all closes the paths of its target. Only what restricts nothing
//! may be left out, with a finding.

mod authentication;
mod authorization;
mod cache;
mod call;
mod condition;
mod http_rule;
mod metadata;
mod reader;
mod response;
mod url;
mod value;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use call::RuleSecret;
use reader::RuleReader;

use super::block::SpecJson;
use super::expressions::PolicyExpressions;
use super::policy::{PolicyBlock, PolicyTargetRef, fault, head, reason, target};
use crate::model::auth::AuthEntry;
use crate::object::Age;
use crate::project::expressions::HeldExpressions;
use crate::project::field::{FindingList, InvalidValue};
use crate::project::gateway::LabelSelector;
use crate::project::raw_object::RawObject;
use crate::project::{Projection, Sharing};

/// The parts of an AuthPolicy that routing reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthPolicy {
    /// Its name and age.
    pub age: Age,
    /// `spec.targetRef`, or the reason why it cannot be used.
    pub target: Result<PolicyTargetRef, String>,
    /// The rules by section and name, such as `authentication#partners`, or the reason why the specification
    /// contradicts itself or cannot be read. Those of API keys have none yet, those of tokens no keys,
    /// and those with calls no addresses and no secrets.
    pub rules: Result<PolicyBlock<AuthEntry>, String>,
    /// The labels of the Secrets with API keys, by the names of the rules.
    pub api_keys: BTreeMap<Arc<str>, LabelSelector>,
    /// The Secrets that rules read, by the names of the rules.
    pub secrets: BTreeMap<Arc<str>, RuleSecret>,
    /// The reasons for rules that cannot be used, and refuse every request.
    pub unusable: Box<[String]>,
    /// Whether it is being deleted: it refuses nothing and takes part in no merge, while its finalizers run.
    pub is_being_deleted: bool,
}

impl AuthPolicy {
    /// The reason why it is not accepted, whatever objects there are.
    #[must_use]
    pub fn invalid(&self) -> Option<&str> {
        let (rules, target) = (self.rules.as_ref().err(), self.target.as_ref().err());
        rules.or(target).map(String::as_str)
    }
}

impl Sharing for AuthPolicy {}

impl Projection for AuthPolicy {
    /// The fields with an expression: compiling one takes time, whether it has a pattern or not.
    const EXPRESSION_MARKS: &'static [&'static str] =
        &["\"predicate\"", "\"expression\"", "\"urlExpression\"", "\"matches\""];

    /// A policy that cannot be read is a projection too, so that it closes its target and its status can say so.
    fn project(source: &RawObject<'_>, findings: &mut FindingList) -> Result<Self, InvalidValue> {
        let ((age, effects), is_being_deleted) = (head(source, findings), source.is_being_deleted);
        let spec = match SpecJson::read(source.spec) {
            Ok(spec) => spec,
            Err(invalid) => {
                findings.policy_not_enforced(&invalid);
                let why = reason(&invalid);
                let (target, rules) = (Err(why.clone()), Err(why));
                let (api_keys, secrets, unusable) = (BTreeMap::new(), BTreeMap::new(), Box::default());
                return Ok(Self { age, target, rules, api_keys, secrets, unusable, is_being_deleted });
            }
        };
        let target = target(spec.target_ref, source.name()).map_err(|invalid| {
            findings.policy_not_enforced(&invalid);
            reason(&invalid)
        });
        let mut reader = RuleReader {
            policy: &source.meta.object,
            shadow: effects.shadow,
            findings,
            expressions: PolicyExpressions::new(source.compiling),
            patterns: BTreeMap::new(),
            when: Ok(Arc::default()),
            entries: BTreeMap::new(),
            api_keys: BTreeMap::new(),
            secrets: BTreeMap::new(),
            unusable: Vec::new(),
        };
        let rules = reader.block(&spec);
        let (api_keys, secrets) = (std::mem::take(&mut reader.api_keys), std::mem::take(&mut reader.secrets));
        let unusable = std::mem::take(&mut reader.unusable).into();
        let rules = rules.map_err(|invalid| reader.report(&invalid));
        Ok(Self { age, target, rules, api_keys, secrets, unusable, is_being_deleted })
    }

    fn expressions(&self) -> Option<HeldExpressions<'_>> {
        let rules = self.rules.iter().flat_map(|block| block.entries.values());
        HeldExpressions::of(self.age.created_s, rules.flat_map(|rule| rule.patterns()))
    }

    /// The rules stay, like others that cannot be used.
    fn leave_out_expressions(&mut self, why: &str, findings: &mut FindingList) {
        let Ok(block) = &mut self.rules else { return };
        let mut all = self.unusable.to_vec();
        for (key, rule) in &mut block.entries {
            let patterns = rule.patterns();
            let Some(pattern) = patterns.first() else { continue };
            let invalid = fault(&format!("rules[{key}]"), pattern.pattern(), why);
            findings.access_closed(&invalid);
            all.push(reason(&invalid));
            *rule = Arc::new(rule.unusable(reason(&invalid)));
        }
        self.unusable = all.into();
    }
}
