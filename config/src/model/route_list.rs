//! Persistent lists of routes in order of precedence. A changed list shares its unchanged parts with the old one:
//! whether it has one route or ten thousand, a change costs one chunk.

use std::cmp::Ordering;
use std::sync::Arc;

use super::route::Route;

/// The maximum number of routes in one chunk. A change copies a chunk, and a pointer to each of the others.
const CHUNK_MAX: usize = 64;

/// Routes in ascending order. No two have the same precedence.
type Chunk = Arc<[Arc<Route>]>;

/// Routes that are tried one after the other, in order of precedence.
#[derive(Clone, Default)]
pub(super) enum RouteList {
    #[default]
    Empty,
    /// The usual case: most paths have one route.
    One(Arc<Route>),
    /// None of the chunks is empty.
    Many(Arc<[Chunk]>),
}

/// Removals and additions of routes. All of `removed` are in the list, and none of `added` is after the removals.
#[derive(Clone, Default)]
pub(super) struct Edits<'r> {
    pub(super) removed: Vec<&'r Arc<Route>>,
    pub(super) added: Vec<&'r Arc<Route>>,
}

impl<'r> Edits<'r> {
    pub(super) const fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.added.is_empty()
    }

    /// The routes after the edits.
    pub(super) fn apply<'a>(&self, routes: impl Iterator<Item = &'a Arc<Route>>) -> Vec<Arc<Route>> {
        let mut removed = self.removed.clone();
        removed.sort_by(|a, b| order(a, b));
        let stays = |route: &&Arc<Route>| removed.binary_search_by(|it| order(it, route)).is_err();
        routes.filter(stays).cloned().chain(self.added.iter().map(|route| Arc::clone(route))).collect()
    }

    /// Splits the edits into those whose routes fit, and the others.
    pub(super) fn partition(self, fits: impl Fn(&Route) -> bool) -> (Self, Self) {
        let split = |routes: Vec<&'r Arc<Route>>| routes.into_iter().partition(|route| fits(route));
        let ((removed, other_removed), (added, other_added)) = (split(self.removed), split(self.added));
        (Self { removed, added }, Self { removed: other_removed, added: other_added })
    }
}

/// The order of all routes of a host: no two are equal.
pub(super) fn order(a: &Route, b: &Route) -> Ordering {
    a.precedence().cmp(&b.precedence())
}

impl RouteList {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::One(_) => 1,
            Self::Many(chunks) => chunks.iter().map(|chunk| chunk.len()).sum(),
        }
    }

    /// The routes in order. Allocates nothing.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Route>> {
        let (one, many) = match self {
            Self::Empty => (None, [].as_slice()),
            Self::One(route) => (Some(route), [].as_slice()),
            Self::Many(chunks) => (None, &**chunks),
        };
        one.into_iter().chain(many.iter().flat_map(|chunk| chunk.iter()))
    }

    /// The list after edits.
    pub(super) fn changed(&self, edits: &Edits<'_>) -> Self {
        if edits.is_empty() {
            return self.clone();
        }
        match self {
            // A large change rebuilds the list.
            Self::Many(chunks) if edits.removed.len() + edits.added.len() <= chunks.len() => {
                let mut chunks = chunks.to_vec();
                edits.removed.iter().for_each(|route| remove(&mut chunks, route));
                edits.added.iter().for_each(|route| insert(&mut chunks, route));
                Self::of_chunks(chunks)
            }
            Self::Empty | Self::One(_) | Self::Many(_) => Self::of(edits.apply(self.iter())),
        }
    }

    /// The list of these routes, which may be in any order.
    pub(super) fn of(mut routes: Vec<Arc<Route>>) -> Self {
        routes.sort_by(|a, b| order(a, b));
        // Half full, so that later insertions do not split every chunk.
        let size = if routes.len() <= CHUNK_MAX { CHUNK_MAX } else { CHUNK_MAX / 2 };
        Self::of_chunks(routes.chunks(size).map(Chunk::from).collect())
    }

    fn of_chunks(chunks: Vec<Chunk>) -> Self {
        match &*chunks {
            [] => Self::Empty,
            [chunk] if chunk.len() == 1 => chunk.first().map_or(Self::Empty, |route| Self::One(Arc::clone(route))),
            _ => Self::Many(chunks.into()),
        }
    }
}

/// The number of the chunk in which a route is, or would be.
fn chunk_of(chunks: &[Chunk], route: &Route) -> usize {
    chunks.partition_point(|chunk| chunk.last().is_some_and(|last| order(last, route).is_lt()))
}

fn remove(chunks: &mut Vec<Chunk>, route: &Route) {
    let number = chunk_of(chunks, route);
    let Some(chunk) = chunks.get_mut(number) else { return };
    *chunk = chunk.iter().filter(|it| order(it, route).is_ne()).cloned().collect();
    let left = chunk.len();
    let next = chunks.get(number + 1).map_or(CHUNK_MAX, |next| next.len());
    // Small chunks are joined, so that their number stays within a small factor of the minimum.
    if left == 0 {
        chunks.remove(number);
    } else if left + next <= CHUNK_MAX / 2 {
        let next = chunks.remove(number + 1);
        if let Some(chunk) = chunks.get_mut(number) {
            *chunk = chunk.iter().chain(&*next).cloned().collect();
        }
    }
}

fn insert(chunks: &mut Vec<Chunk>, route: &Arc<Route>) {
    let number = chunk_of(chunks, route).min(chunks.len().saturating_sub(1));
    let Some(chunk) = chunks.get_mut(number) else { return chunks.push([Arc::clone(route)].into()) };
    let at = chunk.partition_point(|it| order(it, route).is_lt());
    let (before, after) = chunk.split_at(at);
    let all: Vec<Arc<Route>> = before.iter().chain([route]).chain(after).cloned().collect();
    if all.len() <= CHUNK_MAX {
        *chunk = all.into();
    } else {
        let halves = all.chunks(all.len().div_ceil(2)).map(Chunk::from);
        chunks.splice(number..=number, halves);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop, prop_assert, prop_assert_eq, proptest};

    use super::super::path::PathMatch;
    use super::super::route::{Action, Origin};
    use super::*;
    use crate::object::{Age, Kind, ObjectName, ObjectRef};

    fn route(position: u32) -> Arc<Route> {
        let name = ObjectName::new("shop", "web");
        let object = ObjectRef::new(Kind::Ingress, name.clone());
        let origin = Origin { object, age: Age { created_s: 0, name }, field: "spec".into(), position };
        Arc::new(Route::new(origin, PathMatch::Prefix("/a".into()), Action::Forward(Box::default())))
    }

    fn positions(list: &RouteList) -> Vec<u32> {
        list.iter().map(|route| route.origin.position).collect()
    }

    proptest! {
        #[test]
        fn a_changed_list_equals_one_built_from_its_routes(
            start in prop::collection::btree_set(0_u32..1000, 0..500),
            rounds in prop::collection::vec(prop::collection::btree_map(0_u32..1000, any::<bool>(), 1..8), 0..60)
                .prop_map(|rounds| rounds.into_iter().map(|it| it.into_iter().collect::<Vec<_>>()).collect::<Vec<_>>()),
        ) {
            let mut want = start;
            let mut list = RouteList::of(want.iter().rev().map(|it| route(*it)).collect());
            for round in rounds {
                // Some of the routes in the list are removed, and some are removed and added again.
                let removed: Vec<_> = round.iter().filter(|(it, _)| want.contains(it)).map(|(it, _)| route(*it)).collect();
                let added: Vec<_> = round.iter().filter(|(it, added)| *added || !want.contains(it)).map(|(it, _)| route(*it)).collect();
                for (it, added) in &round {
                    if !want.remove(it) || *added {
                        want.insert(*it);
                    }
                }
                list = list.changed(&Edits { removed: removed.iter().collect(), added: added.iter().collect() });
                prop_assert_eq!(positions(&list), want.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(list.len(), want.len());
                if let RouteList::Many(chunks) = &list {
                    prop_assert!(chunks.iter().all(|chunk| (1..=CHUNK_MAX).contains(&chunk.len())));
                    prop_assert!(chunks.len() <= want.len() / (CHUNK_MAX / 8) + 2, "{} chunks for {}", chunks.len(), want.len());
                }
            }
        }
    }

    #[test]
    fn a_change_of_one_route_shares_the_other_chunks() {
        let before = RouteList::of((0..20_000).step_by(2).map(route).collect());
        let (removed, added) = (route(5000), route(5001));
        let after = before.changed(&Edits { removed: vec![&removed], added: vec![&added] });
        let (RouteList::Many(old), RouteList::Many(new)) = (&before, &after) else { panic!("one chunk") };
        let others = new.iter().filter(|chunk| !old.iter().any(|it| Arc::ptr_eq(it, chunk))).count();
        assert_eq!((new.len(), others), (old.len(), 1));
    }
}
