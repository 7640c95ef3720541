//! Everything about one host: its routes in order of precedence, and its certificates.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::certificate::ServerCertificates;
use super::condition::Head;
use super::expression::Steps;
use super::path::PathMatch;
use super::path_index::PathIndex;
use super::path_shard::UNINDEXED_MAX;
use super::preflight::Search;
use super::route::Route;
use super::route_list::{Edits, RouteList, order};
use super::route_table::VirtualHost;

/// Everything about one host: its routes, and the certificates for its handshakes.
#[derive(Clone, Serialize)]
pub struct HostRoutes {
    /// The virtual host.
    pub host: VirtualHost,
    routes: Routes,
    /// The route for requests that no other takes: the default backend of the objects that name this host.
    pub fallback: Option<Arc<Route>>,
    /// Only for routes without a host: the route for requests that other hosts do not take.
    pub last_resort: Option<Arc<Route>>,
    /// The namespace that the host belongs to, if hosts belong to namespaces. The last resort of another namespace does
    /// not serve this host.
    pub owner: Option<Arc<str>>,
    /// The certificates for server names of this host.
    pub certificates: ServerCertificates,
}

/// The routes of a host.
#[derive(Clone)]
enum Routes {
    /// So few that each is tried.
    Few(RouteList),
    Indexed(Arc<PathIndex>),
}

impl HostRoutes {
    /// A host with these routes, without owner and without certificates. The cost grows with the routes of this host
    /// alone.
    #[must_use]
    pub fn new(host: impl Into<VirtualHost>, routes: Vec<Arc<Route>>, fallback: Option<Arc<Route>>) -> Self {
        Self {
            host: host.into(),
            routes: Routes::of(routes),
            fallback,
            last_resort: None,
            owner: None,
            certificates: ServerCertificates::default(),
        }
    }

    /// The same host without some of its routes and with others, which may replace them. The rest is shared: the cost
    /// grows with the change, and with the routes that share the first eight elements of their paths with it, or
    /// sixty-four of them if those are fewer.
    #[must_use]
    pub fn changed(&self, removed: &[Arc<Route>], added: &[Arc<Route>]) -> Self {
        let edits = Edits { removed: removed.iter().collect(), added: added.iter().collect() };
        Self { routes: self.routes.changed(edits), ..self.clone() }
    }

    /// Returns `true` if everything but the routes equals that of another host; the routes may be equal, too.
    #[must_use]
    pub fn differs_in_routes_alone(&self, other: &Self) -> bool {
        let Self { host, routes: _, fallback, last_resort, owner, certificates } = self;
        (host, fallback, last_resort) == (&other.host, &other.fallback, &other.last_resort)
            && (owner, certificates) == (&other.owner, &other.certificates)
    }

    /// The number of routes, without fallback and last resort.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.routes {
            Routes::Few(routes) => routes.len(),
            Routes::Indexed(index) => index.len(),
        }
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The routes in order of precedence. Allocates a list of all of them.
    #[must_use]
    pub fn routes(&self) -> Vec<&Arc<Route>> {
        self.routes.in_order()
    }

    /// The route for requests that no other route takes.
    #[must_use]
    pub const fn fallback(&self) -> Option<&Arc<Route>> {
        self.fallback.as_ref()
    }

    /// Every route in no order, including the fallback and the last resort. Allocates a list of all of them.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Route>> {
        let routes = match &self.routes {
            Routes::Few(routes) => routes.iter().collect(),
            Routes::Indexed(index) => index.all(),
        };
        routes.into_iter().chain(&self.fallback).chain(&self.last_resort)
    }

    /// Returns `true` if look-ups use the index instead of trying every route.
    #[must_use]
    pub const fn indexed(&self) -> bool {
        matches!(self.routes, Routes::Indexed(_))
    }

    /// The routes whose path matches, in order of precedence, whatever their conditions. Allocates nothing. Expressions
    /// take some of the steps.
    pub fn candidates<'a>(&'a self, path: &str, steps: &Steps) -> impl Iterator<Item = &'a Arc<Route>> {
        self.routes.candidates(path).filter(move |route| route.path.matches(path, steps))
    }

    /// The routes with exactly this path, in order of precedence.
    pub fn with_path<'a>(&'a self, path: &'a PathMatch) -> impl Iterator<Item = &'a Arc<Route>> {
        let expressions = match &self.routes {
            Routes::Indexed(index) if matches!(path, PathMatch::Regex(_) | PathMatch::AnyService(_)) => {
                Some(index.scanned())
            }
            Routes::Few(_) | Routes::Indexed(_) => None,
        };
        // Every other path matches its own text.
        let candidates = expressions.is_none().then(|| self.routes.candidates(path.text()));
        let all = expressions.into_iter().flatten().chain(candidates.into_iter().flatten());
        all.filter(move |route| route.path == *path)
    }

    /// The route that takes a request with this normalised path, or the fallback. If the steps do not suffice, it is
    /// not known which route takes the request. A preflight is not taken by the names of its headers alone.
    #[must_use]
    pub fn find<H: Head + ?Sized>(&self, path: &str, head: &H, steps: &Steps) -> Option<&Arc<Route>> {
        self.find_by(&mut Search::new(head, steps), path, ())
    }

    /// The same in a search through several hosts, of which this is one.
    pub(super) fn find_by<'r, P: Copy, H: Head + ?Sized>(
        &'r self,
        search: &mut Search<'_, 'r, P, H>,
        path: &str,
        place: P,
    ) -> Option<&'r Arc<Route>> {
        let mut candidates = self.candidates(path, search.steps());
        candidates.find(|route| search.takes(place, route)).or_else(|| self.fallback())
    }

    /// The routes that [`HostRoutes::find`] tries in turn for a request with this normalised path: the first that takes
    /// it serves it. The fallback, whose conditions are not evaluated, is the last.
    pub fn in_turn<'a>(&'a self, path: &str, steps: &Steps) -> impl Iterator<Item = &'a Arc<Route>> {
        self.candidates(path, steps).chain(self.fallback())
    }
}

impl Routes {
    fn of(routes: Vec<Arc<Route>>) -> Self {
        if routes.len() <= UNINDEXED_MAX {
            return Self::Few(RouteList::of(routes));
        }
        let edits = Edits { added: routes.iter().collect(), ..Edits::default() };
        Self::Indexed(Arc::new(PathIndex::default().changed(edits)))
    }

    fn changed(&self, edits: Edits<'_>) -> Self {
        if edits.is_empty() {
            return self.clone();
        }
        match self {
            Self::Few(routes) => Self::of(routes.changed(&edits).iter().cloned().collect()),
            Self::Indexed(index) => {
                let changed = index.changed(edits);
                if changed.len() > UNINDEXED_MAX {
                    return Self::Indexed(Arc::new(changed));
                }
                Self::of(changed.all().into_iter().cloned().collect())
            }
        }
    }

    /// The routes whose path may match.
    fn candidates<'a>(&'a self, path: &str) -> impl Iterator<Item = &'a Arc<Route>> {
        let (every, picked) = match self {
            Self::Few(routes) => (Some(routes.iter()), None),
            Self::Indexed(index) => (None, Some(index.candidates(path))),
        };
        every.into_iter().flatten().chain(picked.into_iter().flatten())
    }

    fn in_order(&self) -> Vec<&Arc<Route>> {
        match self {
            Self::Few(routes) => routes.iter().collect(),
            Self::Indexed(index) => {
                let mut routes = index.all();
                routes.sort_by(|a, b| order(a, b));
                routes
            }
        }
    }
}

/// Equal if they have the same routes; the index follows from these.
impl PartialEq for Routes {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Few(a), Self::Few(b)) => a.iter().eq(b.iter()),
            (Self::Indexed(a), Self::Indexed(b)) => {
                Arc::ptr_eq(a, b) || a.len() == b.len() && self.in_order() == other.in_order()
            }
            (Self::Few(_) | Self::Indexed(_), _) => false,
        }
    }
}

impl Serialize for Routes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.in_order())
    }
}

/// Equal if the same requests go the same way with the same certificates.
impl PartialEq for HostRoutes {
    fn eq(&self, other: &Self) -> bool {
        self.differs_in_routes_alone(other) && self.routes == other.routes
    }
}

impl Eq for HostRoutes {}

impl fmt::Debug for HostRoutes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostRoutes")
            .field("host", &self.host)
            .field("routes", &self.routes())
            .field("fallback", &self.fallback)
            .field("last_resort", &self.last_resort)
            .field("owner", &self.owner)
            .field("certificates", &self.certificates)
            .finish()
    }
}
