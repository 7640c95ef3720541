//! GRPCRoute (`gateway.networking.k8s.io/v1`): routes of gRPC calls.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::http_filter::{FilterContext, HttpFilters, filters};
use super::http_match::{Named, values, whole};
use super::http_route::{HOSTNAMES_MAX, HttpBackend, SpecJson, rule_name, shares};
use super::parent::{Hostnames, ParentRef, hostnames, parents};
use super::rules::{REGULAR_EXPRESSION, Rule, Rules, leave_out_expressions};
use super::session::{RuleId, RuleSession, session};
use crate::finding::printable;
use crate::model::{Expression, PathMatch, Subject, ValueMatch};
use crate::object::Age;
use crate::project::expressions::Expressions;
use crate::project::field::{FindingList, InvalidValue, read, read_or_default};
use crate::project::raw_object::{RawObject, created_s};
use crate::project::{HeldExpressions, Projection};

/// The maximum length in bytes of the name of a service or method.
const NAME_BYTES_MAX: usize = 1024;

/// The parts of a GRPCRoute that routing reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrpcRoute {
    /// Its name and age.
    pub age: Age,
    /// `spec.parentRefs`.
    pub parents: Arc<[ParentRef]>,
    /// `spec.hostnames`.
    pub hostnames: Hostnames,
    /// The valid rules of `spec.rules`, in their order.
    pub rules: Box<[GrpcRule]>,
    /// The indexes in `spec.rules` of the invalid ones.
    pub dropped: Box<[usize]>,
}

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrpcRule {
    /// Its index in `spec.rules`.
    pub index: usize,
    /// `name`, which policies refer to.
    pub name: Option<Arc<str>>,
    /// Its matches; one of them must hold.
    pub matches: Box<[GrpcMatch]>,
    /// The filters.
    pub filters: HttpFilters,
    /// The backends.
    pub backends: Box<[HttpBackend]>,
    /// `sessionPersistence`.
    pub session: Option<RuleSession>,
}

/// A match of calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrpcMatch {
    /// Service and method as a match of the path of a call (`/service/method`).
    pub path: PathMatch,
    /// All of these headers.
    pub headers: Box<[ValueMatch]>,
}

impl Rule for GrpcRule {
    fn index(&self) -> usize {
        self.index
    }

    fn expressions(&self) -> impl Iterator<Item = Vec<&Expression>> {
        self.matches.iter().map(|it| it.expressions().collect())
    }
}

impl GrpcMatch {
    /// Its expressions.
    fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.path.expression().into_iter().chain(self.headers.iter().filter_map(|it| it.value.expression()))
    }

    /// Like [`GrpcMatch::expressions`], to replace them by equal ones.
    pub(in crate::project) fn expressions_mut(&mut self) -> impl Iterator<Item = &mut Expression> {
        let headers = self.headers.iter_mut().filter_map(|it| it.value.expression_mut());
        self.path.expression_mut().into_iter().chain(headers)
    }
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
    session_persistence: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct MatchJson<'a> {
    method: Option<MethodJson>,
    #[serde(borrow)]
    headers: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct MethodJson {
    #[serde(rename = "type")]
    kind: Option<String>,
    service: Option<Arc<str>>,
    method: Option<Arc<str>>,
}

impl Projection for GrpcRoute {
    const EXPRESSION_MARKS: &'static [&'static str] = &[REGULAR_EXPRESSION];

    fn project(source: &RawObject<'_>, findings: &mut FindingList) -> Result<Self, InvalidValue> {
        let spec: SpecJson<'_> = read_or_default(source.spec, "spec")?;
        let own = source.name();
        let age = Age { created_s: created_s(source.created, findings), name: own.clone() };
        let parents = parents(spec.parent_refs, own, findings);
        let hostnames = hostnames(spec.hostnames, HOSTNAMES_MAX, findings);
        let (rules, dropped) = Rules::of(source, findings).read(spec.rules, rule);
        Ok(Self { age, parents, hostnames, rules, dropped })
    }

    fn expressions(&self) -> Option<HeldExpressions<'_>> {
        HeldExpressions::of(self.age.created_s, self.rules.iter().flat_map(Rule::expressions).flatten())
    }

    fn leave_out_expressions(&mut self, why: &str, findings: &mut FindingList) {
        leave_out_expressions(&mut self.rules, &mut self.dropped, why, findings);
    }
}

fn rule(rules: &mut Rules<'_>, raw: &RawValue, field: &str, index: usize) -> Result<GrpcRule, InvalidValue> {
    let json: RuleJson<'_> = read(raw, field)?;
    let identity = json.matches.clone().filter(|_| json.session_persistence.is_some()).unwrap_or_default();
    let matches = rules.matches(json.matches, field, every_call, grpc_match)?;
    let within = FilterContext { own: rules.own, grpc: true, one_prefix: false, backends: false };
    let name = rule_name(json.name, field, rules.findings);
    let id = RuleId { uid: rules.uid, name: name.as_deref(), matches: &identity };
    let session = session(json.session_persistence, &format!("{field}.sessionPersistence"), id, rules.findings);
    let findings = &mut *rules.findings;
    Ok(GrpcRule {
        index,
        name,
        matches,
        filters: filters(json.filters, &format!("{field}.filters"), within, findings),
        backends: shares(json.backend_refs, field, within, findings),
        session,
    })
}

/// The match of a rule without matches.
fn every_call() -> GrpcMatch {
    GrpcMatch { path: PathMatch::Prefix(Arc::default()), headers: Box::default() }
}

fn grpc_match(
    raw: &RawValue,
    field: &str,
    expressions: &mut Expressions<'_>,
    findings: &mut FindingList,
) -> Result<GrpcMatch, InvalidValue> {
    let json: MatchJson<'_> = read(raw, field)?;
    let headers = values(json.headers, Named::Header, &format!("{field}.headers"), expressions, findings)?;
    let Some(MethodJson { kind, service, method }) = json.method else {
        return Ok(GrpcMatch { headers, ..every_call() });
    };
    let field = format!("{field}.method");
    let (service, method) = (part(service, &field, "service")?, part(method, &field, "method")?);
    let fault = |below: &str, value: &str, why: &str| InvalidValue {
        field: format!("{field}.{below}"),
        value: printable(value),
        why: why.to_owned(),
    };
    let path = match (kind.as_deref(), &service, &method) {
        (_, None, None) => return Err(fault("service", "", "is missing, and so is the method")),
        (None | Some("Exact"), service, method) => {
            for (below, name) in [("service", service), ("method", method)] {
                if let Some(name) = name.as_deref().filter(|name| !is_name(name, below == "service")) {
                    return Err(fault(below, name, "is not a valid name of gRPC"));
                }
            }
            exact(service.as_deref(), method.as_deref())
        }
        (Some(REGULAR_EXPRESSION), service, method) => {
            // Each is checked by itself first: an invalid expression could close its group early.
            for (below, pattern) in [("service", service), ("method", method)] {
                if let Some(pattern) = pattern {
                    expressions.check(pattern).map_err(|why| fault(below, pattern, &why))?;
                }
            }
            let any = "[^/]+";
            let (service, method) = (service.as_deref().unwrap_or(any), method.as_deref().unwrap_or(any));
            let pattern = format!("/(?:{service})/(?:{method})");
            expressions.compile(&pattern, whole(Subject::Path)).map(PathMatch::Regex)
        }
        (Some(kind), _, _) => return Err(fault("type", kind, "is neither Exact nor RegularExpression")),
    };
    let path = path.map_err(|why| fault("type", kind.as_deref().unwrap_or("Exact"), &why))?;
    Ok(GrpcMatch { path, headers })
}

/// A part of the path; an empty text counts as absent.
fn part(text: Option<Arc<str>>, field: &str, below: &str) -> Result<Option<Arc<str>>, InvalidValue> {
    match text.filter(|text| !text.is_empty()) {
        Some(text) if text.len() > NAME_BYTES_MAX => {
            let why = format!("is longer than {NAME_BYTES_MAX} bytes");
            Err(InvalidValue { field: format!("{field}.{below}"), value: printable(&text), why })
        }
        text => Ok(text),
    }
}

/// The path of calls. The order of such paths is that of the API: the longer service first, then the longer method.
fn exact(service: Option<&str>, method: Option<&str>) -> Result<PathMatch, String> {
    match (service, method) {
        (Some(service), Some(method)) => PathMatch::exact(&format!("/{service}/{method}")).map_err(str::to_owned),
        (Some(service), None) => PathMatch::prefix(&format!("/{service}")).map_err(str::to_owned),
        (None, method) => Ok(PathMatch::AnyService(method.unwrap_or_default().into())),
    }
}

/// A name of letters, digits and underscores; that of a service may have dots.
fn is_name(text: &str, dots: bool) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || dots && b == b'.';
    text.bytes().all(inner) && !text.starts_with(|mark: char| mark.is_ascii_digit()) && !text.contains("..")
}
