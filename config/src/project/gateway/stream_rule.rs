//! The one rule of routes that pass connections or datagrams on.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::backend::{WeightedBackend, backends, weighted};
use super::http_route::rule_name;
use crate::object::ObjectName;
use crate::project::field::{Found, read};

/// Rules that are read of one route.
const RULES_MAX: usize = 1;

/// A rule that takes all that its route takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamRule {
    /// `name`, by which policies know it.
    pub name: Option<Arc<str>>,
    /// Where connections or datagrams go. The share of one that cannot be read is closed or dropped.
    pub backends: Box<[WeightedBackend]>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct RuleJson<'a> {
    name: Option<Arc<str>>,
    #[serde(borrow)]
    backend_refs: Option<&'a RawValue>,
}

/// The rule of a route, where it has one that can be read.
pub(super) fn stream_rule(list: Option<Vec<&RawValue>>, own: &ObjectName, found: &mut Found) -> Option<StreamRule> {
    let (field, raw) = found.entries(list, RULES_MAX, "spec.rules").next()?;
    let json: RuleJson<'_> = match read(raw, &field) {
        Ok(json) => json,
        Err(misread) => {
            found.misread(&misread);
            return None;
        }
    };
    let name = rule_name(json.name, &field, found);
    let backends =
        backends(json.backend_refs, &format!("{field}.backendRefs"), found, Found::misread, |raw, field, found| {
            weighted(raw, field, own, found, Found::misread)
        });
    Some(StreamRule { name, backends })
}
