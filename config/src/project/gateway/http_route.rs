//! HTTPRoute (`gateway.networking.k8s.io/v1`): which requests go where, and what is changed on the way.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::backend::{WeightedBackend, backends, weighted};
use super::http_filter::{HttpFilters, Place, filters};
use super::http_match::{Expressions, HttpMatch, every_request, http_match};
use super::parent::{Hostnames, ParentRef, hostnames, parents};
use super::reference::section;
use super::retry::{Retry, SessionPersistence, Timeouts, retry, session, timeouts};
use crate::model::PathMatch;
use crate::object::{Age, ObjectName};
use crate::project::field::{Found, Misread, read, read_or_default};
use crate::project::source::{Source, created_s};

/// Hostnames that are read of one route.
pub(super) const HOSTNAMES_MAX: usize = 16;
/// Rules that are read of one route.
pub(super) const RULES_MAX: usize = 16;
/// Matches that are read of one rule.
pub(super) const RULE_MATCHES_MAX: usize = 64;
/// Matches that are read of all rules of a route.
pub(super) const MATCHES_MAX: usize = 128;

/// What routing reads of an HTTPRoute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpRoute {
    /// Its name and age.
    pub age: Age,
    /// `spec.parentRefs`.
    pub parents: Box<[ParentRef]>,
    /// `spec.hostnames`.
    pub hostnames: Hostnames,
    /// `spec.rules` that can be read, in their order.
    pub rules: Box<[HttpRule]>,
    /// The places in `spec.rules` of those that cannot.
    pub dropped: Box<[usize]>,
}

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpRule {
    /// Its place in `spec.rules`.
    pub place: usize,
    /// `name`, by which policies know it.
    pub name: Option<Arc<str>>,
    /// What it matches; one of them is enough.
    pub matches: Box<[HttpMatch]>,
    /// What is done with requests.
    pub filters: HttpFilters,
    /// Where they go.
    pub backends: Box<[HttpBackend]>,
    /// `timeouts`.
    pub timeouts: Timeouts,
    /// `retry`; `None` for the edge's own way.
    pub retry: Option<Retry>,
    /// `sessionPersistence`.
    pub session: Option<SessionPersistence>,
}

/// A share of the requests of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpBackend {
    /// Where it goes.
    pub share: WeightedBackend,
    /// What is done with its requests, after the filters of the rule.
    pub filters: HttpFilters,
}

impl From<WeightedBackend> for HttpBackend {
    fn from(share: WeightedBackend) -> Self {
        Self { share, filters: HttpFilters::default() }
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

pub(in crate::project) fn project(source: &Source<'_>, found: &mut Found) -> Result<HttpRoute, Misread> {
    let spec: SpecJson<'_> = read_or_default(source.spec, "spec")?;
    let own = source.name();
    let age = Age { created_s: created_s(source.created, found), name: own.clone() };
    let parents = parents(spec.parent_refs, own, found);
    let hostnames = hostnames(spec.hostnames, HOSTNAMES_MAX, found);
    let mut reader = Reader { own, expressions: Expressions::new(), matches_left: MATCHES_MAX, found };
    let (rules, dropped) = reader.rules(spec.rules);
    Ok(HttpRoute { age, parents, hostnames, rules, dropped })
}

/// The name of a rule. One that cannot be read is none: nothing in traffic depends on it.
pub(super) fn rule_name(name: Option<Arc<str>>, field: &str, found: &mut Found) -> Option<Arc<str>> {
    let name = name?;
    section(&name).map_err(|why| found.ignored(&format!("{field}.name"), &name, why)).ok()?;
    Some(name)
}

/// A backend with filters of its own. What is no object has none, and says so itself.
pub(super) fn backend(raw: &RawValue, field: &str, place: Place<'_>, found: &mut Found) -> HttpBackend {
    let share = weighted(raw, field, place.own, found, Found::answered_with_500);
    let json: FiltersJson<'_> = read(raw, field).unwrap_or_default();
    let filters = filters(json.filters, &format!("{field}.filters"), Place { backends: false, ..place }, found);
    HttpBackend { share, filters }
}

struct Reader<'r> {
    own: &'r ObjectName,
    expressions: Expressions,
    matches_left: usize,
    found: &'r mut Found,
}

impl Reader<'_> {
    /// A route that says nothing of rules has one, for every request: the API server writes that into it.
    fn rules(&mut self, list: Option<Vec<&RawValue>>) -> (Box<[HttpRule]>, Box<[usize]>) {
        let Some(list) = list else { return ([self.rule_of_nothing()].into(), Box::default()) };
        let (mut rules, mut dropped) = (Vec::new(), Vec::new());
        for (place, (field, raw)) in self.found.entries(Some(list), RULES_MAX, "spec.rules").enumerate() {
            match self.rule(raw, &field, place) {
                Ok(rule) => rules.push(rule),
                Err(misread) => {
                    self.found.misread(&misread);
                    dropped.push(place);
                }
            }
        }
        (rules.into(), dropped.into())
    }

    fn rule_of_nothing(&self) -> HttpRule {
        HttpRule {
            place: 0,
            name: None,
            matches: [every_request()].into(),
            filters: HttpFilters::default(),
            backends: Box::default(),
            timeouts: Timeouts::default(),
            retry: None,
            session: None,
        }
    }

    fn rule(&mut self, raw: &RawValue, field: &str, place: usize) -> Result<HttpRule, Misread> {
        let json: RuleJson<'_> = read(raw, field)?;
        let matches = self.matches(json.matches, field)?;
        let within = Place {
            own: self.own,
            grpc: false,
            one_prefix: matches!(&*matches, [HttpMatch { path: PathMatch::Prefix(_), .. }]),
            backends: has_backends(json.backend_refs),
        };
        let (name, found) = (rule_name(json.name, field, self.found), &mut *self.found);
        Ok(HttpRule {
            place,
            name,
            matches,
            filters: filters(json.filters, &format!("{field}.filters"), within, found),
            backends: backends(
                json.backend_refs,
                &format!("{field}.backendRefs"),
                found,
                Found::answered_with_500,
                |raw, field, found| backend(raw, field, within, found),
            ),
            timeouts: timeouts(json.timeouts, &format!("{field}.timeouts"), found),
            retry: retry(json.retry, &format!("{field}.retry"), found),
            session: session(json.session_persistence, &format!("{field}.sessionPersistence"), found),
        })
    }

    /// One that cannot be read drops the rule. Matches beyond the limits are left out, unless that leaves none.
    fn matches(&mut self, list: Option<Vec<&RawValue>>, field: &str) -> Result<Box<[HttpMatch]>, Misread> {
        let list = list.unwrap_or_default();
        if list.is_empty() {
            return Ok([every_request()].into());
        }
        let (field, limit) = (format!("{field}.matches"), RULE_MATCHES_MAX.min(self.matches_left));
        if limit == 0 {
            let value = format!("{} entries", list.len());
            let why = format!("go beyond the limit of {MATCHES_MAX} of all rules");
            return Err(Misread { field, value, why });
        }
        let entries = self.found.entries(Some(list), limit, &field);
        let matches: Vec<HttpMatch> = entries
            .map(|(field, raw)| http_match(raw, &field, &mut self.expressions, self.found))
            .collect::<Result<_, _>>()?;
        self.matches_left = self.matches_left.saturating_sub(matches.len());
        Ok(matches.into())
    }
}

/// Whether backends are written, be they readable or not.
pub(super) fn has_backends(raw: Option<&RawValue>) -> bool {
    raw.is_some_and(|raw| read::<Vec<&RawValue>>(raw, "").map_or(true, |list| !list.is_empty()))
}
