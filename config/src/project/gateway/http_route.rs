//! HTTPRoute (`gateway.networking.k8s.io/v1`): routes of HTTP requests.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::backend::{WeightedBackend, backends, weighted};
use super::http_filter::{FilterContext, HttpFilters, filters};
use super::http_match::{HttpMatch, every_request, http_match};
use super::parent::{Hostnames, ParentRef, hostnames, parents};
use super::reference::section;
use super::retry::{Retry, Timeouts, retry, timeouts};
use super::rules::{REGULAR_EXPRESSION, Rule, Rules, leave_out_expressions};
use super::session::{RuleId, RuleSession, session};
use crate::model::{Expression, PathMatch};
use crate::object::Age;
use crate::project::field::{FindingList, InvalidValue, read, read_or_default};
use crate::project::raw_object::{RawObject, created_s};
use crate::project::{HeldExpressions, Projection};

/// The maximum number of hostnames of one route.
pub(super) const HOSTNAMES_MAX: usize = 16;

/// The parts of an HTTPRoute that routing reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpRoute {
    /// Its name and age.
    pub age: Age,
    /// `spec.parentRefs`.
    pub parents: Arc<[ParentRef]>,
    /// `spec.hostnames`.
    pub hostnames: Hostnames,
    /// The valid rules of `spec.rules`, in their order.
    pub rules: Box<[HttpRule]>,
    /// The indexes in `spec.rules` of the invalid ones.
    pub dropped: Box<[usize]>,
}

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpRule {
    /// Its index in `spec.rules`.
    pub index: usize,
    /// `name`, which policies refer to.
    pub name: Option<Arc<str>>,
    /// Its matches; one of them must hold.
    pub matches: Box<[HttpMatch]>,
    /// The filters.
    pub filters: HttpFilters,
    /// The backends.
    pub backends: Box<[HttpBackend]>,
    /// Its settings; `None` if it has none.
    pub settings: Option<Box<RuleSettings>>,
}

/// The settings of a rule, which most rules do not have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuleSettings {
    /// `timeouts`.
    pub timeouts: Timeouts,
    /// `retry`; `None` for the default behaviour of the edge.
    pub retry: Option<Retry>,
    /// `sessionPersistence`.
    pub session: Option<RuleSession>,
}

/// A share of the requests of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpBackend {
    /// The backend and its weight.
    pub share: WeightedBackend,
    /// The filters of its requests, after those of the rule.
    pub filters: HttpFilters,
}

impl From<WeightedBackend> for HttpBackend {
    fn from(share: WeightedBackend) -> Self {
        Self { share, filters: HttpFilters::default() }
    }
}

impl Rule for HttpRule {
    fn index(&self) -> usize {
        self.index
    }

    fn expressions(&self) -> impl Iterator<Item = Vec<&Expression>> {
        self.matches.iter().map(|it| it.expressions().collect())
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", expecting = "an object")]
pub(super) struct SpecJson<'a> {
    #[serde(borrow)]
    pub(super) parent_refs: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    pub(super) hostnames: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    pub(super) rules: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct RuleJson<'a> {
    name: Option<Arc<str>>,
    #[serde(borrow)]
    matches: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    filters: Option<&'a RawValue>,
    #[serde(borrow)]
    backend_refs: Option<&'a RawValue>,
    #[serde(borrow)]
    timeouts: Option<&'a RawValue>,
    #[serde(borrow)]
    retry: Option<&'a RawValue>,
    #[serde(borrow)]
    session_persistence: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(expecting = "an object")]
struct FiltersJson<'a> {
    #[serde(borrow)]
    filters: Option<&'a RawValue>,
}

impl Projection for HttpRoute {
    const EXPRESSION_MARKS: &'static [&'static str] = &[REGULAR_EXPRESSION];

    fn project(source: &RawObject<'_>, findings: &mut FindingList) -> Result<Self, InvalidValue> {
        let spec: SpecJson<'_> = read_or_default(source.spec, "spec")?;
        let own = source.name();
        let age = Age { created_s: created_s(source.created, findings), name: own.clone() };
        let parents = parents(spec.parent_refs, own, findings);
        let hostnames = hostnames(spec.hostnames, HOSTNAMES_MAX, findings);
        let (rules, dropped) = match spec.rules {
            // The API server adds this rule to the object as a default.
            None => ([every_rule()].into(), Box::default()),
            list => Rules::of(source, findings).read(list, rule),
        };
        Ok(Self { age, parents, hostnames, rules, dropped })
    }

    fn expressions(&self) -> Option<HeldExpressions<'_>> {
        HeldExpressions::of(self.age.created_s, self.rules.iter().flat_map(Rule::expressions).flatten())
    }

    fn leave_out_expressions(&mut self, why: &str, findings: &mut FindingList) {
        leave_out_expressions(&mut self.rules, &mut self.dropped, why, findings);
    }
}

/// The name of a rule. A name that cannot be read counts as absent: traffic does not depend on it.
pub(super) fn rule_name(name: Option<Arc<str>>, field: &str, findings: &mut FindingList) -> Option<Arc<str>> {
    let name = name?;
    section(&name).map_err(|why| findings.ignored(&format!("{field}.name"), &name, why)).ok()?;
    Some(name)
}

/// The shares of a rule. A backend that cannot be read is answered 500.
pub(super) fn shares(
    raw: Option<&RawValue>,
    field: &str,
    within: FilterContext<'_>,
    findings: &mut FindingList,
) -> Box<[HttpBackend]> {
    let field = format!("{field}.backendRefs");
    backends(raw, &field, findings, FindingList::filter_or_backend_invalid, |raw, field, findings| {
        backend(raw, field, within, findings)
    })
}

/// A backend with filters of its own. An entry that is not an object has none; it has a finding already.
fn backend(raw: &RawValue, field: &str, context: FilterContext<'_>, findings: &mut FindingList) -> HttpBackend {
    let share = weighted(raw, field, context.own, findings, FindingList::filter_or_backend_invalid);
    let json: FiltersJson<'_> = read(raw, field).unwrap_or_default();
    let filters =
        filters(json.filters, &format!("{field}.filters"), FilterContext { backends: false, ..context }, findings);
    HttpBackend { share, filters }
}

/// The rule of a route without `rules`: for every request.
fn every_rule() -> HttpRule {
    HttpRule {
        index: 0,
        name: None,
        matches: [every_request()].into(),
        filters: HttpFilters::default(),
        backends: Box::default(),
        settings: None,
    }
}

fn rule(rules: &mut Rules<'_>, raw: &RawValue, field: &str, index: usize) -> Result<HttpRule, InvalidValue> {
    let json: RuleJson<'_> = read(raw, field)?;
    let identity = json.matches.clone().filter(|_| json.session_persistence.is_some()).unwrap_or_default();
    let matches = rules.matches(json.matches, field, every_request, http_match)?;
    let within = FilterContext {
        own: rules.own,
        grpc: false,
        one_prefix: matches!(&*matches, [HttpMatch { path: PathMatch::Prefix(_), .. }]),
        backends: has_backends(json.backend_refs),
    };
    let name = rule_name(json.name, field, rules.findings);
    let id = RuleId { uid: rules.uid, name: name.as_deref(), matches: &identity };
    let session = session(json.session_persistence, &format!("{field}.sessionPersistence"), id, rules.findings);
    let findings = &mut *rules.findings;
    let filters = filters(json.filters, &format!("{field}.filters"), within, findings);
    let backends = shares(json.backend_refs, field, within, findings);
    let settings = RuleSettings {
        timeouts: timeouts(json.timeouts, &format!("{field}.timeouts"), findings),
        retry: retry(json.retry, &format!("{field}.retry"), findings),
        session,
    };
    Ok(HttpRule {
        index,
        name,
        matches,
        filters,
        backends,
        settings: (settings != RuleSettings::default()).then(|| Box::new(settings)),
    })
}

/// Returns `true` if the rule lists backends, readable or not.
pub(super) fn has_backends(raw: Option<&RawValue>) -> bool {
    raw.is_some_and(|raw| read::<Vec<&RawValue>>(raw, "").map_or(true, |list| !list.is_empty()))
}
