//! A persistent index by path over the routes of one host. A changed index shares its unchanged parts with the old one.
//!
//! Literal paths are in a tree by elements: a node has the routes whose path ends there and, below, either one shard of
//! a few routes or a node for each next element. So a change copies the nodes along its path and compiles one shard.
//! Expressions and prefixes by characters, which a tree cannot find, are in a list and tried in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use rpds::HashTrieMapSync;

use super::path::PathMatch;
use super::path_shard::PathShard;
use super::route::Route;
use super::route_list::{Edits, RouteList, order};

/// The maximum number of routes in one shard, above [`LEVELS_MAX`].
const SHARD_MAX: usize = 64;
/// The depth of the tree in elements: routes that share this many are in one shard, however many they are.
const LEVELS_MAX: usize = 8;

type Elements = HashTrieMapSync<Arc<str>, Arc<Node>, foldhash::fast::RandomState>;

/// Routes, found by path.
#[derive(Clone, Default)]
pub(super) struct PathIndex {
    literal: Node,
    /// Routes that a tree cannot find, in order of precedence.
    scanned: RouteList,
    len: usize,
}

/// The routes that begin with the same elements.
#[derive(Clone, Default)]
struct Node {
    /// Routes for exactly that path.
    exact: RouteList,
    /// Routes for that path and everything below it.
    prefix: RouteList,
    below: Below,
    /// The number of routes, including those below.
    len: usize,
}

/// The routes whose paths have more elements.
#[derive(Clone, Default)]
enum Below {
    #[default]
    Nothing,
    Shard(Arc<PathShard>),
    /// All with this element next.
    One(Arc<str>, Arc<Node>),
    /// By their next element.
    Many(Elements),
}

/// The place of a node in the tree.
#[derive(Clone, Copy, Default)]
struct NodePosition {
    /// The number of elements above it.
    level: usize,
    /// The length of these elements in bytes.
    skip: usize,
}

impl PathIndex {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The index after edits.
    pub(super) fn changed(&self, edits: Edits<'_>) -> Self {
        let (literal, scanned) = edits.partition(|route| literal(route).is_some());
        let (literal, scanned) =
            (self.literal.changed(NodePosition::default(), literal), self.scanned.changed(&scanned));
        let len = literal.len + scanned.len();
        Self { literal, scanned, len }
    }

    /// Every route, in no order.
    pub(super) fn all(&self) -> Vec<&Arc<Route>> {
        let mut all = Vec::with_capacity(self.len);
        self.literal.collect(&mut all);
        all.extend(self.scanned.iter());
        all
    }

    /// The routes that a tree cannot find, in order of precedence.
    pub(super) fn scanned(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.scanned.iter()
    }

    /// The routes whose path may match, in order of precedence. Allocates nothing.
    pub(super) fn candidates(&self, path: &str) -> impl Iterator<Item = &Arc<Route>> {
        let mut found = self.literal.candidates(path).peekable();
        let mut scanned = self.scanned.iter().peekable();
        std::iter::from_fn(move || match (found.peek(), scanned.peek()) {
            (Some(a), Some(b)) if order(b, a).is_lt() => scanned.next(),
            (Some(_), _) => found.next(),
            (None, _) => scanned.next(),
        })
    }
}

/// The path of a route that is in the tree.
fn literal(route: &Route) -> Option<&str> {
    match &route.path {
        PathMatch::Exact(path) | PathMatch::Prefix(path) => Some(path),
        PathMatch::PrefixCharacters(_) | PathMatch::Regex(_) | PathMatch::AnyService(_) => None,
    }
}

/// The next element of the rest of a path, and the rest after it.
fn split(rest: &str) -> Option<(&str, &str)> {
    let after = rest.strip_prefix('/')?;
    after.split_at_checked(after.find('/').unwrap_or(after.len()))
}

impl Node {
    fn changed(&self, position: NodePosition, edits: Edits<'_>) -> Self {
        let rest = |route: &Route| literal(route).and_then(|path| path.get(position.skip..)).unwrap_or_default().len();
        let (here, below) = edits.partition(|route| rest(route) == 0);
        let (exact, prefix) = here.partition(|route| matches!(route.path, PathMatch::Exact(_)));
        let (exact, prefix) = (self.exact.changed(&exact), self.prefix.changed(&prefix));
        let (below, count) = self.below.changed(position, below, self.len - self.exact.len() - self.prefix.len());
        let len = exact.len() + prefix.len() + count;
        Self { exact, prefix, below, len }
    }

    fn collect<'a>(&'a self, all: &mut Vec<&'a Arc<Route>>) {
        all.extend(self.exact.iter().chain(self.prefix.iter()));
        self.below.collect(all);
    }

    /// The longest literal paths come first: that of the deepest node, and then those above it.
    fn candidates(&self, path: &str) -> impl Iterator<Item = &Arc<Route>> {
        let mut lists: [Option<&RouteList>; LEVELS_MAX + 2] = [None; LEVELS_MAX + 2];
        let mut free = lists.iter_mut().rev();
        let mut note = |list| free.next().map(|free| *free = Some(list));
        let (mut node, mut rest) = (self, path);
        let shard = loop {
            note(&node.prefix);
            if rest.is_empty() {
                note(&node.exact);
                break None;
            }
            let next = match &node.below {
                Below::Nothing => break None,
                Below::Shard(shard) => break Some(shard.candidates(path)),
                Below::One(element, node) => {
                    split(rest).filter(|(next, _)| **element == **next).map(|(_, rest)| (node, rest))
                }
                Below::Many(elements) => split(rest).and_then(|(next, rest)| Some((elements.get(next)?, rest))),
            };
            match next {
                Some((below, after)) => (node, rest) = (below, after),
                None => break None,
            }
        };
        shard.into_iter().flatten().chain(lists.into_iter().flatten().flat_map(RouteList::iter))
    }
}

impl Below {
    /// The part below after edits, and its number of routes; `len` is the number before.
    fn changed(&self, position: NodePosition, edits: Edits<'_>, len: usize) -> (Self, usize) {
        if edits.is_empty() {
            return (self.clone(), len);
        }
        match self {
            Self::Nothing => Self::of(position, edits.added.into_iter().cloned().collect()),
            Self::Shard(shard) => Self::of(position, edits.apply(shard.routes().iter())),
            Self::One(..) | Self::Many(_) => {
                let (changed, len) = self.clone().with_elements(position, edits, len);
                // Merged only below half the size that is split, so that one route more or less does not merge and
                // split repeatedly.
                if len > SHARD_MAX / 2 {
                    return (changed, len);
                }
                let mut all = Vec::with_capacity(len);
                changed.collect(&mut all);
                Self::of(position, all.into_iter().cloned().collect())
            }
        }
    }

    fn of(position: NodePosition, routes: Vec<Arc<Route>>) -> (Self, usize) {
        let len = routes.len();
        if len == 0 {
            return (Self::Nothing, 0);
        }
        if len <= SHARD_MAX || position.level >= LEVELS_MAX {
            return (Self::Shard(Arc::new(PathShard::new(routes, position.skip))), len);
        }
        let added = routes.iter().collect();
        Self::Nothing.with_elements(position, Edits { added, ..Edits::default() }, 0)
    }

    fn with_elements(mut self, position: NodePosition, edits: Edits<'_>, mut len: usize) -> (Self, usize) {
        let mut by_element: BTreeMap<&str, Edits<'_>> = BTreeMap::new();
        let element =
            |route| literal(route).and_then(|path| path.get(position.skip..)).and_then(split).unwrap_or_default().0;
        for route in edits.removed {
            by_element.entry(element(route)).or_default().removed.push(route);
        }
        for route in edits.added {
            by_element.entry(element(route)).or_default().added.push(route);
        }
        for (element, edits) in by_element {
            let below = NodePosition { level: position.level + 1, skip: position.skip + 1 + element.len() };
            let before = self.get(element);
            let node = before
                .map_or_else(|| Node::default().changed(below, edits.clone()), |it| it.changed(below, edits.clone()));
            len = (len + node.len).saturating_sub(before.map_or(0, |it| it.len));
            self.set(element, node);
        }
        (self, len)
    }

    fn get(&self, element: &str) -> Option<&Arc<Node>> {
        match self {
            Self::Nothing | Self::Shard(_) => None,
            Self::One(own, node) => (**own == *element).then_some(node),
            Self::Many(elements) => elements.get(element),
        }
    }

    /// Sets a node, or removes it if it is empty.
    fn set(&mut self, element: &str, node: Node) {
        let there = node.len > 0;
        let node = Arc::new(node);
        match self {
            Self::Many(elements) if there => elements.insert_mut(element.into(), node),
            Self::Many(elements) => drop(elements.remove_mut(element)),
            Self::One(own, _) if **own != *element => {
                if there && let Self::One(own, other) = std::mem::take(self) {
                    let mut elements = Elements::new_with_hasher_and_ptr_kind(foldhash::fast::RandomState::default());
                    elements.insert_mut(own, other);
                    elements.insert_mut(element.into(), node);
                    *self = Self::Many(elements);
                }
            }
            Self::Nothing | Self::Shard(_) | Self::One(..) if there => *self = Self::One(element.into(), node),
            Self::Nothing | Self::Shard(_) | Self::One(..) => *self = Self::Nothing,
        }
    }

    fn collect<'a>(&'a self, all: &mut Vec<&'a Arc<Route>>) {
        match self {
            Self::Nothing => {}
            Self::Shard(shard) => all.extend(shard.routes()),
            Self::One(_, node) => node.collect(all),
            Self::Many(elements) => elements.values().for_each(|node| node.collect(all)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::condition::{TextMatch, ValueMatch};
    use super::super::path_shard::COMPILED;
    use super::super::route::{Action, Origin};
    use super::*;
    use crate::object::{Age, Kind, ObjectName, ObjectRef};

    fn route(path: &PathMatch, number: u32) -> Route {
        let name = ObjectName::new("shop", "web");
        let object = ObjectRef::new(Kind::HttpRoute, name.clone());
        let origin = Origin { object, age: Age { created_s: 0, name }, field: "spec".into(), position: number };
        Route::new(origin, path.clone(), Action::Forward(Box::default()))
    }

    /// The number of routes of shards that are compiled when one of ten thousand routes is replaced.
    fn compiled_for_one(route: impl Fn(u32) -> Route) -> usize {
        let all: Vec<Arc<Route>> = (0..10_001).map(|number| Arc::new(route(number))).collect();
        let (last, first) = all.split_last().unwrap();
        let before = PathIndex::default().changed(Edits { added: first.iter().collect(), ..Edits::default() });
        COMPILED.set(0);
        let after = before.changed(Edits { removed: vec![&first[5000]], added: vec![last] });
        assert_eq!((before.len(), after.len()), (10_000, 10_000));
        COMPILED.get()
    }

    #[track_caller]
    fn check(path: impl Fn(u32) -> String, max: usize) {
        let compiled = compiled_for_one(|number| route(&PathMatch::prefix(&path(number)).unwrap(), number));
        assert!(compiled <= max, "{}: {compiled} of 10,000 routes were compiled", path(5000));
    }

    #[test]
    fn one_route_of_ten_thousand_compiles_no_more_than_two_shards() {
        check(|number| format!("/{number}"), 0);
        check(|number| format!("/api/v1/{number}"), 0);
        check(|number| format!("/api/v1/{number}/items"), 2);
        check(|number| format!("/{}/{}", number / 10, number % 10), 20);
        check(|number| format!("/{}/{}/a", number / 50, number % 50), 2 * SHARD_MAX);
        check(|number| format!("/{}/a/{}", number % 3, number / 3), 0);
        // As many elements as the tree is deep, and one more.
        check(|number| format!("/1/2/3/4/5/6/7/{number}/items"), 2);
    }

    #[test]
    fn routes_of_one_path_and_character_prefixes_compile_no_shard() {
        let everything = PathMatch::prefix("/").unwrap();
        let by_header = |number| {
            let mut route = route(&everything, number);
            let value = TextMatch::Exact(number.to_string().into());
            route.conditions.headers = [ValueMatch { name: "x-tenant".into(), value }].into();
            route
        };
        assert_eq!(compiled_for_one(by_header), 0);
        let by_characters = |number: u32| route(&PathMatch::prefix_characters(&format!("/{number}-")).unwrap(), number);
        assert_eq!(compiled_for_one(by_characters), 0);
    }

    /// The worst case: docs/decisions/0036-within-a-host.md.
    #[test]
    fn routes_that_share_too_many_elements_are_compiled_together() {
        let path = |number| PathMatch::prefix(&format!("/1/2/3/4/5/6/7/8/{number}")).unwrap();
        assert_eq!(compiled_for_one(|number| route(&path(number), number)), 10_000);
    }
}
