//! The literal paths of a few routes that share their first elements, in one `matchit` tree.
//!
//! The reference for a look-up is to try every route in order. The tree finds the node of the longest literal path, and
//! each node links to that of the next shorter prefix, because a candidate whose conditions fail must fall through.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::path::PathMatch;
use super::route::Route;
use super::route_list::order;

/// Up to this number of routes, trying each is faster and smaller than a tree.
pub(super) const UNINDEXED_MAX: usize = 8;

#[cfg(test)]
thread_local! {
    /// The number of routes of shards that this test has compiled.
    pub(super) static COMPILED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Routes that are compiled into one tree.
pub(super) struct PathShard {
    /// In order of precedence.
    routes: Box<[Arc<Route>]>,
    /// The length in bytes of the elements that all their paths begin with.
    skip: usize,
    tree: Option<Tree>,
}

struct Tree {
    router: matchit::Router<u32>,
    nodes: Box<[Node]>,
}

/// The candidates of one literal path, and the node of the next shorter prefix by elements.
struct Node {
    candidates: Vec<u32>,
    shorter: Option<u32>,
}

impl PathShard {
    /// A shard of routes with literal paths that share their first `skip` bytes.
    pub(super) fn new(mut routes: Vec<Arc<Route>>, skip: usize) -> Self {
        #[cfg(test)]
        COMPILED.set(COMPILED.get() + routes.len());
        routes.sort_by(|a, b| order(a, b));
        let tree = (routes.len() > UNINDEXED_MAX).then(|| Tree::build(&routes, skip)).flatten();
        Self { routes: routes.into(), skip, tree }
    }

    pub(super) fn routes(&self) -> &[Arc<Route>] {
        &self.routes
    }

    /// The routes whose path may match in order of precedence, for a path that begins with their common elements.
    pub(super) fn candidates(&self, path: &str) -> impl Iterator<Item = &Arc<Route>> {
        let (every, picked) = match &self.tree {
            None => (0..self.routes.len(), None),
            Some(tree) => (0..0, path.get(self.skip..).map(|rest| tree.candidates(rest))),
        };
        every.chain(picked.into_iter().flatten()).filter_map(|number| self.routes.get(number))
    }
}

impl Tree {
    /// `None` if the tree refuses a path, which escaping should prevent: every route is tried then.
    fn build(routes: &[Arc<Route>], skip: usize) -> Option<Self> {
        let mut exact: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        let mut prefixes: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for (number, route) in (0u32..).zip(routes) {
            match &route.path {
                PathMatch::Exact(path) => exact.entry(path.get(skip..)?).or_default().push(number),
                PathMatch::Prefix(path) => prefixes.entry(path.get(skip..)?).or_default().push(number),
                PathMatch::PrefixCharacters(_) | PathMatch::Regex(_) | PathMatch::AnyService(_) => return None,
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
            keys.insert(format!("{literal}/"), number);
            keys.insert(format!("{literal}/{{*rest}}"), number);
            keys.insert(literal, number);
        }
        for (path, candidates) in exact {
            let number = u32::try_from(nodes.len()).ok()?;
            nodes.push(Node { candidates, shorter: longest_at(path.strip_suffix('/').unwrap_or(path)) });
            keys.insert(escape(path), number);
        }
        let mut router = matchit::Router::new();
        for (key, number) in keys {
            router.insert(key, number).ok()?;
        }
        Some(Self { router, nodes: nodes.into() })
    }

    fn node(&self, number: u32) -> Option<&Node> {
        self.nodes.get(number as usize)
    }

    /// The numbers of the routes whose path may match, ascending.
    fn candidates(&self, rest: &str) -> impl Iterator<Item = usize> + use<'_> {
        let start = self.router.at(rest).ok().and_then(|found| self.node(*found.value));
        let chain = std::iter::successors(start, |node| node.shorter.and_then(|number| self.node(number)));
        chain.flat_map(|node| &node.candidates).map(|number| *number as usize)
    }
}

/// The path itself and its shorter prefixes by elements, down to the empty one.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| path.rfind('/').and_then(|end| path.get(..end)))
}

fn escape(path: &str) -> String {
    path.replace('{', "{{").replace('}', "}}")
}
