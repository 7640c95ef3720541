//! A route: its match, guards, filters and action.

use std::cmp::{Ordering, Reverse};
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::backend::{Target, WeightedTarget};
use super::condition::Conditions;
use super::expression::Expression;
use super::filter::{DirectResponse, Filter, Redirect};
use super::path::PathMatch;
use super::policy::Guard;
use super::settings::{ScopeId, Settings};
use crate::object::{Age, ObjectRef};

/// The object of a route, and the place in it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Origin {
    /// The object.
    pub object: ObjectRef,
    /// Its age.
    pub age: Age,
    /// The field of the rule, such as `spec.rules[0].http.paths[1]`.
    pub field: Arc<str>,
    /// The number of the rule among those of its object for the host: the last criterion of precedence.
    pub position: u32,
}

impl Origin {
    /// The maximum number of matches in one rule of a route of the Gateway API.
    pub const MATCHES_MAX: u32 = 64;

    /// The position of a match of a rule of a route of the Gateway API: after those of all earlier rules.
    #[must_use]
    pub const fn position(rule: u32, number: u32) -> u32 {
        let last = u32::MAX / Self::MATCHES_MAX - 1;
        if rule < last { rule * Self::MATCHES_MAX + number } else { last * Self::MATCHES_MAX + number }
    }

    /// The index of the rule at this position.
    #[must_use]
    pub const fn rule_index(&self) -> u32 {
        self.position / Self::MATCHES_MAX
    }
}

/// The action of a route.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum Action {
    /// Forwards a request to one of these by weight. If there are none, or the weights sum to 0, it answers 503.
    Forward(Box<[WeightedTarget]>),
    /// Redirects the client.
    Redirect(Box<Redirect>),
    /// Answers the request itself.
    Respond(Arc<DirectResponse>),
}

impl Action {
    /// The shares of a route that forwards; empty for other actions.
    #[must_use]
    pub fn shares(&self) -> &[WeightedTarget] {
        match self {
            Self::Forward(shares) => shares,
            Self::Redirect(_) | Self::Respond(_) => &[],
        }
    }

    /// The targets of the shares, including those of weight 0.
    pub fn targets(&self) -> impl Iterator<Item = &Arc<Target>> {
        self.shares().iter().filter_map(WeightedTarget::target)
    }
}

/// One rule of one host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Route {
    /// The object and rule it comes from.
    pub origin: Arc<Origin>,
    /// The name in access logs, if it differs from the object's.
    pub log_name: Option<Arc<str>>,
    /// The name of its rule, if the object names it (Gateway API, `HTTPRouteRule.name`).
    pub rule: Option<Arc<str>>,
    /// The path match.
    pub path: PathMatch,
    /// The other conditions; a request that does not meet them falls through to the next rule.
    pub conditions: Conditions,
    /// The access checks, in order.
    pub guards: Arc<[Guard]>,
    /// The filters, in order.
    pub filters: Arc<[Filter]>,
    /// The action.
    pub action: Action,
    /// Its own settings, narrower than those of its scopes.
    pub settings: Arc<Settings>,
    /// Its scopes from narrow to wide.
    pub scopes: Arc<[ScopeId]>,
}

/// The order in which the routes of a host are tried, the lesser first: the more specific path, then more conditions (a
/// method, then headers, then query parameters, as the Gateway API counts them), then the older object, then
/// `namespace/name`, then the earlier rule, and then the kind of the object. No two routes of a host are equal.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Precedence<'a> {
    path: (u8, Reverse<usize>, u8),
    methods: Reverse<bool>,
    headers: Reverse<usize>,
    queries: Reverse<usize>,
    text: &'a str,
    age: &'a Age,
    position: u32,
    object: &'a ObjectRef,
}

/// The reason why a route is tried after another of the same host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Later {
    /// Its path is less specific.
    Path,
    /// It matches no method.
    Method,
    /// It matches fewer headers.
    Headers,
    /// It matches fewer query parameters.
    Queries,
    /// Paths of one length are tried in the order of their text.
    Text,
    /// Its object is younger.
    Age,
    /// It is a later rule of the same object, or of one of the same age and name.
    Position,
}

impl fmt::Display for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Path => "its path is less specific",
            Self::Method => "it matches no method",
            Self::Headers => "it matches fewer headers",
            Self::Queries => "it matches fewer query parameters",
            Self::Text => "paths of one length are tried in the order of their text",
            Self::Age => "its object is younger, or as old and later by name",
            Self::Position => "it is a later rule of the same object",
        })
    }
}

impl Precedence<'_> {
    /// The reason why this route is tried after an earlier one.
    #[must_use]
    pub fn later_than(&self, earlier: &Self) -> Later {
        if self.path != earlier.path {
            Later::Path
        } else if self.methods != earlier.methods {
            Later::Method
        } else if self.headers != earlier.headers {
            Later::Headers
        } else if self.queries != earlier.queries {
            Later::Queries
        } else if self.text != earlier.text {
            Later::Text
        } else if self.age != earlier.age {
            Later::Age
        } else {
            Later::Position
        }
    }
}

impl Route {
    /// Every target of its requests: of shares, mirrors and authorisation services. Their endpoints must be in the
    /// snapshot.
    pub fn targets(&self) -> impl Iterator<Item = &Arc<Target>> {
        let of_shares = self.action.shares().iter().flat_map(|share| &*share.filters);
        let mirrors = self.filters.iter().chain(of_shares).filter_map(Filter::mirrored);
        let of_shares = self.action.shares().iter().filter_map(|share| share.external_auth.as_ref());
        let asked = self.guards.iter().filter_map(Guard::external_auth).chain(of_shares);
        self.action.targets().chain(mirrors).chain(asked.map(|service| &service.target))
    }

    /// A rule for a path with an action, on every listener, without conditions, guards, filters, and settings of its
    /// own.
    #[must_use]
    pub fn new(origin: Origin, path: PathMatch, action: Action) -> Self {
        Self {
            origin: Arc::new(origin),
            log_name: None,
            rule: None,
            path,
            conditions: Conditions::default(),
            guards: Arc::default(),
            filters: Arc::default(),
            action,
            settings: Arc::default(),
            scopes: Arc::default(),
        }
    }

    /// Its place among the routes of its host.
    #[must_use]
    pub fn precedence(&self) -> Precedence<'_> {
        Precedence {
            path: self.path.rank(),
            methods: Reverse(!self.conditions.methods.is_empty()),
            headers: Reverse(self.conditions.headers.len()),
            queries: Reverse(self.conditions.queries.len()),
            text: self.path.text(),
            age: &self.origin.age,
            position: self.origin.position,
            object: &self.origin.object,
        }
    }

    /// The price of its expressions in steps: what trying it with a request takes at most.
    #[must_use]
    pub fn price(&self) -> u64 {
        self.expressions().map(Expression::price).sum()
    }

    /// The expressions of its path and its conditions.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.path.expression().into_iter().chain(self.conditions.expressions())
    }

    /// The literal path of routes that a request tries together; `None` for those that are tried whatever the path.
    #[must_use]
    pub const fn tried_at(&self) -> Option<&PathMatch> {
        match &self.path {
            PathMatch::Exact(_) | PathMatch::Prefix(_) => Some(&self.path),
            PathMatch::PrefixCharacters(_) | PathMatch::Regex(_) | PathMatch::AnyService(_) => None,
        }
    }

    /// Returns `true` if two routes match exactly the same requests, so that only the first of them serves any.
    #[must_use]
    pub fn same_match(&self, other: &Self) -> bool {
        self.cmp_match(other).is_eq()
    }

    /// An order in which routes are equal if they match exactly the same requests.
    #[must_use]
    pub fn cmp_match(&self, other: &Self) -> Ordering {
        (&self.path, &self.conditions).cmp(&(&other.path, &other.conditions))
    }
}
