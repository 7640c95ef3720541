//! The one rule of routes that pass on connections or datagrams.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::backend::{WeightedBackend, backends, weighted};
use super::http_route::rule_name;
use crate::object::ObjectName;
use crate::project::field::{FindingList, read};

/// The maximum number of rules of one route.
const RULES_MAX: usize = 1;

/// A rule for all connections or datagrams of its route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamRule {
    /// `name`, which policies refer to.
    pub name: Option<Arc<str>>,
    /// The backends. The share of one that cannot be read is closed or dropped.
    pub backends: Box<[WeightedBackend]>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct RuleJson<'a> {
    name: Option<Arc<str>>,
    #[serde(borrow)]
    backend_refs: Option<&'a RawValue>,
}

/// The rule of a route, if it has a valid one.
pub(super) fn stream_rule(
    list: Option<Vec<&RawValue>>,
    own: &ObjectName,
    findings: &mut FindingList,
) -> Option<StreamRule> {
    let (field, raw) = findings.entries(list, RULES_MAX, "spec.rules").next()?;
    let json: RuleJson<'_> = match read(raw, &field) {
        Ok(json) => json,
        Err(invalid) => {
            findings.invalid(&invalid);
            return None;
        }
    };
    let name = rule_name(json.name, &field, findings);
    let backends = backends(
        json.backend_refs,
        &format!("{field}.backendRefs"),
        findings,
        FindingList::invalid,
        |raw, field, findings| weighted(raw, field, own, findings, FindingList::invalid),
    );
    Some(StreamRule { name, backends })
}
