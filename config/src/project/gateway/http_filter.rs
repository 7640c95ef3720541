//! Filters of routes, in the order of their list.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::cors::{Cors, cors};
use super::external_auth::{ExternalAuth, external_auth};
use super::header_edits::{header_edits, within};
use super::mirror::{RequestMirror, mirror};
use super::path_edit::{RequestRedirect, redirect, rewrite};
use super::reference::{Form, ObjectReference, reference};
use crate::finding::printable;
use crate::model::{Filter, PathRewrite, ResponseEdits};
use crate::object::ObjectName;
use crate::project::field::{FindingList, InvalidValue, read};

/// The maximum number of filters in one list.
const FILTERS_MAX: usize = 16;

/// One filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HttpFilter {
    /// Header edits and rewrites, in the form of the model. A rewrite of host and path becomes two filters.
    Edit(Filter),
    /// Redirects the client.
    Redirect(RequestRedirect),
    /// Sends copies of requests to another backend.
    Mirror(RequestMirror),
    /// A CORS policy.
    Cors(Cors),
    /// Calls an authorisation service.
    ExternalAuth(ExternalAuth),
    /// A filter defined by an object of another kind.
    Extension(ObjectReference),
}

/// The filters of a rule or of a backend.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HttpFilters {
    /// The valid filters, in their order.
    pub list: Box<[HttpFilter]>,
    /// The reason why they cannot be applied: requests are answered 500 then, because no filter may be skipped.
    pub fault: Option<FilterFault>,
}

/// The reason why filters cannot be applied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FilterFault {
    /// A filter cannot be read, or is of an unknown kind.
    Unsupported,
    /// All can be read, but they contradict each other or the rule.
    Incompatible,
}

/// The context of a list of filters.
#[derive(Clone, Copy)]
pub(super) struct FilterContext<'p> {
    /// The object.
    pub(super) own: &'p ObjectName,
    /// Whether it is a GRPCRoute, which has fewer kinds of filters.
    pub(super) grpc: bool,
    /// Whether the rule has exactly one path match, and it is a prefix, which can be replaced.
    pub(super) one_prefix: bool,
    /// Whether the rule has backends, which a redirect must not have.
    pub(super) backends: bool,
}

/// A fault and its place.
pub(super) struct InvalidFilter {
    invalid: InvalidValue,
    fault: FilterFault,
}

impl InvalidFilter {
    pub(super) const fn incompatible(invalid: InvalidValue) -> Self {
        Self { invalid, fault: FilterFault::Incompatible }
    }
}

impl From<InvalidValue> for InvalidFilter {
    fn from(invalid: InvalidValue) -> Self {
        Self { invalid, fault: FilterFault::Unsupported }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct FilterJson<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(borrow)]
    request_header_modifier: Option<&'a RawValue>,
    #[serde(borrow)]
    response_header_modifier: Option<&'a RawValue>,
    #[serde(borrow)]
    request_mirror: Option<&'a RawValue>,
    #[serde(borrow)]
    request_redirect: Option<&'a RawValue>,
    #[serde(borrow)]
    url_rewrite: Option<&'a RawValue>,
    #[serde(borrow)]
    cors: Option<&'a RawValue>,
    #[serde(borrow)]
    external_auth: Option<&'a RawValue>,
    #[serde(borrow)]
    extension_ref: Option<&'a RawValue>,
}

impl<'a> FilterJson<'a> {
    /// The kind of filter and its field, for each configured one.
    fn written(&self) -> impl Iterator<Item = (&'static str, &'static str, &'a RawValue)> + use<'a> {
        let all = [
            ("RequestHeaderModifier", "requestHeaderModifier", self.request_header_modifier),
            ("ResponseHeaderModifier", "responseHeaderModifier", self.response_header_modifier),
            ("RequestMirror", "requestMirror", self.request_mirror),
            ("RequestRedirect", "requestRedirect", self.request_redirect),
            ("URLRewrite", "urlRewrite", self.url_rewrite),
            ("CORS", "cors", self.cors),
            ("ExternalAuth", "externalAuth", self.external_auth),
            ("ExtensionRef", "extensionRef", self.extension_ref),
        ];
        all.into_iter().filter_map(|(kind, below, raw)| Some((kind, below, raw?)))
    }
}

/// Reads a list of filters.
pub(super) fn filters(
    raw: Option<&RawValue>,
    field: &str,
    context: FilterContext<'_>,
    findings: &mut FindingList,
) -> HttpFilters {
    let Some(raw) = raw else { return HttpFilters::default() };
    let mut reader = Reader { context, seen: BTreeSet::new(), fault: None, findings };
    let mut all = Vec::new();
    match read(raw, field).and_then(|list: Vec<&RawValue>| within(Some(list), FILTERS_MAX, field)) {
        Ok(list) => {
            for (number, raw) in list.into_iter().enumerate() {
                match reader.filter(raw, &format!("{field}[{number}]")) {
                    Ok(filters) => all.extend(filters),
                    Err(fault) => reader.report(fault),
                }
            }
        }
        Err(invalid) => reader.report(invalid.into()),
    }
    HttpFilters { list: all.into(), fault: reader.fault }
}

struct Reader<'r> {
    context: FilterContext<'r>,
    seen: BTreeSet<&'static str>,
    fault: Option<FilterFault>,
    findings: &'r mut FindingList,
}

impl Reader<'_> {
    /// The first of several faults is the reason.
    fn report(&mut self, InvalidFilter { invalid, fault }: InvalidFilter) {
        self.fault.get_or_insert(fault);
        self.findings.filter_or_backend_invalid(&invalid);
    }

    fn filter(&mut self, raw: &RawValue, field: &str) -> Result<Vec<HttpFilter>, InvalidFilter> {
        let json: FilterJson<'_> = read(raw, field)?;
        let text = json.kind.as_deref().unwrap_or_default();
        let fault = |below: &str, value: &str, why: &str| InvalidValue {
            field: format!("{field}.{below}"),
            value: printable(value),
            why: why.to_owned(),
        };
        let mut written = json.written();
        let (kind, below, raw) = match (written.next(), written.next()) {
            (Some(one), None) if one.0 == text => one,
            (Some(_), _) if KINDS.contains(&text) => {
                return Err(fault("type", text, "is not the filter that is configured, or not alone").into());
            }
            (None, _) if KINDS.contains(&text) => {
                return Err(fault("type", text, "is a filter that is not configured").into());
            }
            _ => return Err(fault("type", text, "is not a known type of filter").into()),
        };
        if self.context.grpc && !GRPC_KINDS.contains(&kind) {
            return Err(fault("type", text, "is not a type of filter for a GRPCRoute").into());
        }
        if !self.seen.insert(kind) && !REPEATED_KINDS.contains(&kind) {
            return Err(InvalidFilter::incompatible(fault(
                "type",
                text,
                "is the type of an earlier filter, and may occur once",
            )));
        }
        if ["RequestRedirect", "URLRewrite"].iter().all(|kind| self.seen.contains(kind)) {
            return Err(InvalidFilter::incompatible(fault(
                "type",
                text,
                "cannot be combined: a rule either redirects or rewrites",
            )));
        }
        self.of_kind(kind, raw, &format!("{field}.{below}"))
    }

    fn of_kind(&mut self, kind: &str, raw: &RawValue, field: &str) -> Result<Vec<HttpFilter>, InvalidFilter> {
        let own = self.context.own;
        let filter = match kind {
            "RequestHeaderModifier" => {
                HttpFilter::Edit(Filter::RequestHeaders(header_edits(raw, field, self.findings)?))
            }
            "ResponseHeaderModifier" => {
                let edits = header_edits(raw, field, self.findings)?;
                HttpFilter::Edit(Filter::ResponseHeaders(ResponseEdits::proxied(edits)))
            }
            "RequestMirror" => HttpFilter::Mirror(mirror(raw, field, own)?),
            "RequestRedirect" => {
                let redirect = redirect(raw, field)?;
                self.check_prefix(redirect.path.as_ref(), field)?;
                if self.context.backends {
                    let why = "cannot be combined with backends: redirected requests go to none".to_owned();
                    return Err(InvalidFilter::incompatible(InvalidValue {
                        field: field.to_owned(),
                        value: kind.to_owned(),
                        why,
                    }));
                }
                HttpFilter::Redirect(redirect)
            }
            "URLRewrite" => {
                let edits = rewrite(raw, field)?;
                for edit in &edits {
                    if let Filter::Path(path) = edit {
                        self.check_prefix(Some(path), field)?;
                    }
                }
                return Ok(edits.into_iter().map(HttpFilter::Edit).collect());
            }
            "CORS" => HttpFilter::Cors(cors(raw, field, self.findings)?),
            "ExternalAuth" => HttpFilter::ExternalAuth(external_auth(raw, field, own)?),
            _ => HttpFilter::Extension(reference(raw, field, own, Form::LOCAL)?),
        };
        Ok(vec![filter])
    }

    /// A prefix can be replaced only if it is the rule's only path match.
    fn check_prefix(&self, path: Option<&PathRewrite>, field: &str) -> Result<(), InvalidFilter> {
        match path {
            Some(PathRewrite::Prefix(text)) if !self.context.one_prefix => {
                Err(InvalidFilter::incompatible(InvalidValue {
                    field: format!("{field}.path.replacePrefixMatch"),
                    value: printable(text),
                    why: "replaces a prefix, and the rule does not match by exactly one prefix".to_owned(),
                }))
            }
            Some(PathRewrite::Prefix(_) | PathRewrite::Full(_)) | None => Ok(()),
        }
    }
}

/// All kinds of filters.
const KINDS: [&str; 8] = [
    "RequestHeaderModifier",
    "ResponseHeaderModifier",
    "RequestMirror",
    "RequestRedirect",
    "URLRewrite",
    "CORS",
    "ExternalAuth",
    "ExtensionRef",
];
/// The kinds that a GRPCRoute may have.
const GRPC_KINDS: [&str; 4] = ["RequestHeaderModifier", "ResponseHeaderModifier", "RequestMirror", "ExtensionRef"];
/// The kinds that may occur several times in one list.
const REPEATED_KINDS: [&str; 2] = ["RequestMirror", "ExtensionRef"];
