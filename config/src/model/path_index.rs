//! The routes of one host, in order of precedence, and an index by path over them.
//!
//! Trying every route in order is the specification of a look-up. Hosts with many routes get an index: a
//! `matchit` tree finds the node of the longest literal path, and each node links to that of the next
//! shorter prefix, because a candidate whose conditions fail must fall through.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::certificate::ServerCertificates;
use super::condition::Head;
use super::listener::{ListenerName, ListenerScope};
use super::path::PathMatch;
use super::route::Route;
use super::route_table::VirtualHost;

/// Up to this many routes, trying each is quicker and smaller than an index.
const UNINDEXED_MAX: usize = 8;

/// Everything about one host: where its requests go, and what is shown in its handshakes.
#[derive(Serialize)]
pub struct HostRoutes {
    /// The virtual host.
    pub host: VirtualHost,
    /// Its routes in order of precedence.
    routes: Box<[Arc<Route>]>,
    /// Where requests go that no route takes.
    fallback: Option<Arc<Route>>,
    /// Of the routes without a host: where requests for other hosts go that those do not take.
    pub last_resort: Option<Arc<Route>>,
    /// The namespace that the host belongs to, where hosts belong to namespaces. The last resort of another is not
    /// for this host.
    pub owner: Option<Arc<str>>,
    /// What is shown to clients that ask for a server name that this host takes.
    pub certificates: ServerCertificates,
    #[serde(skip)]
    index: Option<Box<PathIndex>>,
}

impl HostRoutes {
    /// Orders the routes and indexes them; the host has no owner and no certificates. The work grows with the routes
    /// of this host alone.
    #[must_use]
    pub fn new(host: impl Into<VirtualHost>, mut routes: Vec<Arc<Route>>, fallback: Option<Arc<Route>>) -> Self {
        routes.sort_by(|a, b| a.precedence().cmp(&b.precedence()));
        let index = (routes.len() > UNINDEXED_MAX).then(|| PathIndex::build(&routes)).flatten().map(Box::new);
        Self {
            host: host.into(),
            routes: routes.into(),
            fallback,
            last_resort: None,
            owner: None,
            certificates: ServerCertificates::default(),
            index,
        }
    }

    /// The routes in order of precedence.
    #[must_use]
    pub fn routes(&self) -> &[Arc<Route>] {
        &self.routes
    }

    /// Where requests go that no route takes: the default backend of the objects that name this host.
    #[must_use]
    pub fn fallback(&self) -> Option<&Arc<Route>> {
        self.fallback.as_ref()
    }

    /// Every route, the fallback and the last resort among them.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.iter().chain(&self.fallback).chain(&self.last_resort)
    }

    /// Whether the host has anything for a listener.
    #[must_use]
    pub fn serves(&self, listener: &ListenerName) -> bool {
        let mut all = self.routes.iter().chain(&self.fallback);
        self.routes.is_empty() && self.fallback.is_none() || all.any(|route| route.listeners.holds(listener))
    }

    /// Whether look-ups go through the index instead of trying every route.
    #[must_use]
    pub const fn indexed(&self) -> bool {
        self.index.is_some()
    }

    /// The routes whose path matches, in order of precedence; their conditions are not asked.
    pub fn candidates<'a, 'p>(&'a self, path: &'p str) -> impl Iterator<Item = &'a Arc<Route>> + use<'a, 'p> {
        let (every, picked) = match &self.index {
            None => (0..self.routes.len(), None),
            Some(index) => (0..0, Some(index.candidates(path))),
        };
        every
            .chain(picked.into_iter().flatten())
            .filter_map(|number| self.routes.get(number))
            .filter(move |route| route.path.matches(path))
    }

    /// The route that takes a request with this normalised path, or the fallback.
    #[must_use]
    pub fn find<H: Head + ?Sized>(&self, listener: &ListenerName, path: &str, head: &H) -> Option<&Arc<Route>> {
        self.candidates(path)
            .find(|route| route.listeners.holds(listener) && route.conditions.hold(head))
            .or_else(|| self.fallback().filter(|route| route.listeners.holds(listener)))
    }
}

/// Equal when the same requests go the same way under the same certificates; the index follows from the routes.
impl PartialEq for HostRoutes {
    fn eq(&self, other: &Self) -> bool {
        let Self { host, routes, fallback, last_resort, owner, certificates, index: _ } = self;
        (host, routes, fallback) == (&other.host, &other.routes, &other.fallback)
            && (last_resort, owner, certificates) == (&other.last_resort, &other.owner, &other.certificates)
    }
}

impl Eq for HostRoutes {}

impl fmt::Debug for HostRoutes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostRoutes")
            .field("host", &self.host)
            .field("routes", &self.routes)
            .field("fallback", &self.fallback)
            .field("last_resort", &self.last_resort)
            .field("owner", &self.owner)
            .field("certificates", &self.certificates)
            .finish_non_exhaustive()
    }
}

impl ListenerScope {
    /// Whether it is the scope that asks nothing.
    #[must_use]
    pub const fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }
}

struct PathIndex {
    tree: matchit::Router<u32>,
    nodes: Box<[Node]>,
    /// Routes that no tree can find, in order: expressions and prefixes by characters.
    scanned: Box<[u32]>,
}

/// The candidates of one literal path, and the node of the next shorter prefix by elements.
struct Node {
    candidates: Vec<u32>,
    shorter: Option<u32>,
}

impl PathIndex {
    /// `None` when the tree refuses a path, which escaping should rule out: every route is tried then.
    fn build(routes: &[Arc<Route>]) -> Option<Self> {
        let mut exact: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        let mut prefixes: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        let mut scanned = Vec::new();
        for (number, route) in (0u32..).zip(routes) {
            match &route.path {
                PathMatch::Exact(path) => exact.entry(path).or_default().push(number),
                PathMatch::Prefix(path) => prefixes.entry(path).or_default().push(number),
                PathMatch::PrefixCharacters(_) | PathMatch::Regex(..) => scanned.push(number),
            }
        }
        let numbers: BTreeMap<&str, u32> = prefixes.keys().copied().zip(0u32..).collect();
        let longest_at = |path: &str| ancestors(path).find_map(|p| numbers.get(p).copied());
        let mut nodes = Vec::with_capacity(prefixes.len() + exact.len());
        let mut keys: BTreeMap<String, u32> = BTreeMap::new();
        for (path, candidates) in prefixes {
            let number = u32::try_from(nodes.len()).ok()?;
            nodes.push(Node { candidates, shorter: ancestors(path).skip(1).find_map(|p| numbers.get(p).copied()) });
            let literal = escape(path);
            if !literal.is_empty() {
                keys.insert(literal.clone(), number);
            }
            keys.insert(format!("{literal}/"), number);
            keys.insert(format!("{literal}/{{*rest}}"), number);
        }
        for (path, candidates) in exact {
            let number = u32::try_from(nodes.len()).ok()?;
            nodes.push(Node { candidates, shorter: longest_at(path.strip_suffix('/').unwrap_or(path)) });
            keys.insert(escape(path), number);
        }
        let mut tree = matchit::Router::new();
        for (key, number) in keys {
            tree.insert(key, number).ok()?;
        }
        Some(Self { tree, nodes: nodes.into(), scanned: scanned.into() })
    }

    fn node(&self, number: u32) -> Option<&Node> {
        self.nodes.get(number as usize)
    }

    /// The numbers of the routes whose path may match, ascending.
    fn candidates(&self, path: &str) -> impl Iterator<Item = usize> + use<'_> {
        let start = self.tree.at(path).ok().and_then(|found| self.node(*found.value));
        let chain = std::iter::successors(start, |node| node.shorter.and_then(|number| self.node(number)));
        let mut found = chain.flat_map(|node| &node.candidates).copied().peekable();
        let mut scanned = self.scanned.iter().copied().peekable();
        std::iter::from_fn(move || match (found.peek(), scanned.peek()) {
            (Some(a), Some(b)) if b < a => scanned.next(),
            (Some(_), _) => found.next(),
            (None, _) => scanned.next(),
        })
        .map(|number| number as usize)
    }
}

/// The path itself and its shorter prefixes by elements, down to the empty one.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| path.rfind('/').and_then(|end| path.get(..end)))
}

fn escape(path: &str) -> String {
    path.replace('{', "{{").replace('}', "}}")
}
