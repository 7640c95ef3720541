//! The collections that must be listed before the first model, and before anything is reported to the cluster.
//!
//! Routing makes no sense without Services, EndpointSlices and the required kinds of each source. If namespaces were
//! named, however, a deleted one takes the permission to read it along, and must not block the others: what the API
//! server denies in one namespace is awaited no longer than an optional kind. If no collection of a kind can be read,
//! the loop waits without limit: an API server that has just started denies everything for a moment, and an edge
//! without any routes is not ready.
//!
//! Kinds that restrict access, such as AuthPolicies, are awaited without limit, too: without them, requests would pass
//! that they refuse. If nobody has asked for such a kind, so that it is read by default only, it is not awaited where
//! it may not be read. If the operator has asked for it, it is awaited even in a namespace that denies it, unless
//! everything is denied there: then the namespace has nothing that could be open.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use tidegate_config::object::{Kind, ObjectRef};

use crate::event::Collection;
use crate::options::Pace;
use crate::sources::{reads_by_name, required_kinds};
use crate::world::World;

/// The collections that have been listed, and those that fail.
#[derive(Debug)]
pub struct Listing {
    /// The pairs of a kind and a namespace with a collection of their own.
    namespaces: BTreeSet<(Kind, Arc<str>)>,
    /// The required collections: routing makes no sense without them.
    required: BTreeSet<Collection>,
    /// Sources that have not been listed yet.
    unsynced: BTreeSet<Collection>,
    /// Sources whose state of before the restart still serves, each with the time of that state in seconds since the
    /// epoch.
    restored: BTreeMap<Collection, u64>,
    /// The restored collections that the first model uses. Empty after the loop has been restarted: a panic may have
    /// left their state incomplete.
    trusted: BTreeSet<Collection>,
    /// The failing collections, and whether the reason is a denial.
    failing: BTreeMap<Collection, bool>,
    /// The collections of kinds that the API server does not serve.
    absent: BTreeSet<Collection>,
    /// Sources whose last list would have removed so much that it needs a confirmation.
    unconfirmed: BTreeSet<Collection>,
    /// Since when no required collection is awaited.
    required_since: Option<Instant>,
    /// The kinds that are read by default only.
    optional: BTreeSet<Kind>,
    /// Whether the first model was compiled. Nothing is published or reported before.
    running: bool,
}

impl Listing {
    /// Nothing has been listed yet.
    pub(super) fn new(collections: impl IntoIterator<Item = Collection>) -> Self {
        let unsynced: BTreeSet<Collection> = collections.into_iter().collect();
        let namespaces = unsynced.iter().filter_map(|it| Some((it.kind, it.namespace.clone()?))).collect();
        // If the namespace has no source of routes, its Services only provide addresses. Required kinds, if there are
        // any among the collections, are read wherever routes can be; without them, Services define the routes.
        let of = |kind| {
            unsynced.iter().filter(move |collection| collection.kind == kind).map(|collection| &collection.namespace)
        };
        let mut routed: BTreeSet<_> = required_kinds().flat_map(of).collect();
        if routed.is_empty() {
            routed = of(Kind::EndpointSlice).chain(of(Kind::Service)).collect();
        }
        let of_endpoints = |kind| matches!(kind, Kind::Service | Kind::EndpointSlice);
        let is_awaited = |kind| of_endpoints(kind) || required_kinds().any(|required| required == kind);
        // Routes depend on an object that is read by its name.
        let is_required = |collection: &&Collection| {
            let always = reads_by_name(collection.kind) || collection.kind.restricts_access();
            always || (is_awaited(collection.kind) && routed.contains(&collection.namespace))
        };
        let required = unsynced.iter().filter(is_required).cloned().collect();
        Self {
            namespaces,
            required,
            unsynced,
            restored: BTreeMap::new(),
            trusted: BTreeSet::new(),
            failing: BTreeMap::new(),
            absent: BTreeSet::new(),
            unconfirmed: BTreeSet::new(),
            required_since: None,
            optional: BTreeSet::new(),
            running: false,
        }
    }

    /// The same; `optional` are the kinds that are read by default only.
    pub(super) fn with_optional(self, optional: impl IntoIterator<Item = Kind>) -> Self {
        Self { optional: optional.into_iter().collect(), ..self }
    }

    /// The namespaces with a collection of their own for a kind.
    pub(super) fn namespaces_of(&self, kind: Kind) -> BTreeSet<Arc<str>> {
        self.namespaces.iter().filter(|(of, _)| *of == kind).map(|(_, namespace)| Arc::clone(namespace)).collect()
    }

    /// Sources that have not been listed yet.
    #[must_use]
    pub const fn unsynced(&self) -> &BTreeSet<Collection> {
        &self.unsynced
    }

    /// A collection fails; `denied` if the API server denies access.
    pub(super) fn fails(&mut self, collection: Collection, denied: bool, now: Instant) {
        self.failing.insert(collection, denied);
        self.reckon(now);
    }

    /// A collection has stopped failing.
    pub(super) fn recovers(&mut self, collection: &Collection, now: Instant) {
        self.failing.remove(collection);
        self.reckon(now);
    }

    /// The state of a collection was restored from before the restart. The first model does not wait for its list, but
    /// reports to the cluster do.
    pub(super) fn restores(&mut self, collection: Collection, as_of_s: u64, now: Instant) {
        self.trusted.insert(collection.clone());
        self.restored.insert(collection, as_of_s);
        self.reckon(now);
    }

    /// The part that the next life of the loop takes over: restored state serves until its collection is listed.
    pub(super) fn still_serving(self, collections: impl IntoIterator<Item = Collection>) -> Self {
        Self { restored: self.restored, optional: self.optional, ..Self::new(collections) }
    }

    /// The time of the state of a collection in seconds since the epoch, if it was restored and has not been listed
    /// since.
    #[must_use]
    pub fn restored_as_of_s(&self, collection: &Collection) -> Option<u64> {
        self.restored.get(collection).copied()
    }

    /// The names of the objects of a collection. A collection of all namespaces leaves out the namespaces that have a
    /// collection of their own.
    pub(crate) fn names_of<'a>(
        &self,
        collection: &'a Collection,
        world: &'a World,
    ) -> impl Iterator<Item = &'a ObjectRef> {
        let apart = if collection.namespace.is_none() { self.namespaces_of(collection.kind) } else { BTreeSet::new() };
        let names = world.names_of(collection.kind, collection.namespace.as_deref());
        names.filter(move |object| apart.is_empty() || !apart.contains(&object.name.namespace))
    }

    /// Whether the last list of a collection must be confirmed by the next one.
    pub(crate) fn is_unconfirmed(&self, collection: &Collection) -> bool {
        self.unconfirmed.contains(collection)
    }

    /// A list lacks `gone` of the `known` objects of a collection. Returns `true` if the next list must confirm it.
    pub(super) fn must_be_confirmed(
        &mut self,
        collection: &Collection,
        (gone, known): (usize, usize),
        pace: &Pace,
    ) -> bool {
        if pace.unconfirmed_removals.needs_confirmation(gone, known) && self.unconfirmed.insert(collection.clone()) {
            return true;
        }
        self.unconfirmed.remove(collection);
        false
    }

    /// The API server does not serve the kind of a collection: that it has no objects needs no confirmation.
    pub(super) fn unserved(&mut self, collection: &Collection, now: Instant) {
        self.unconfirmed.remove(collection);
        self.absent.insert(collection.clone());
        self.recovers(collection, now);
    }

    /// The API server has begun to serve the kind of a collection.
    pub(super) fn appears(&mut self, collection: &Collection) {
        self.absent.remove(collection);
    }

    /// Whether a collection has neither been listed nor restored.
    pub(super) fn unknown(&self, collection: &Collection) -> bool {
        self.unsynced.contains(collection) && !self.trusted.contains(collection)
    }

    /// Whether any collection has neither been listed nor restored.
    pub(super) fn any_unknown(&self) -> bool {
        self.unsynced.iter().any(|collection| !self.trusted.contains(collection))
    }

    /// A collection has been listed. Returns `true` the first time.
    pub(super) fn synced(&mut self, collection: &Collection, now: Instant) -> bool {
        let first = self.unsynced.remove(collection);
        self.restored.remove(collection);
        self.trusted.remove(collection);
        self.reckon(now);
        first
    }

    /// Whether there are objects of a kind may not be known, and nobody has asked for it: those of before a restart
    /// stay, and their collection fails; otherwise, nothing waits for it. Returns `true` if something did.
    pub(super) fn unreadable(&mut self, collection: &Collection, now: Instant) -> bool {
        if self.restored.contains_key(collection) {
            self.fails(collection.clone(), true, now);
            return false;
        }
        self.failing.remove(collection);
        let was_awaited = self.unsynced.remove(collection);
        self.reckon(now);
        was_awaited
    }

    /// Returns `true` if the first complete model has been compiled.
    pub(super) const fn running(&self) -> bool {
        self.running
    }

    /// The first model is about to be compiled.
    pub(super) const fn start(&mut self) {
        self.running = true;
    }

    /// Whether the first model still waits for a required collection.
    pub(super) fn waits(&self) -> bool {
        self.required.iter().any(|collection| self.unknown(collection) && !self.spared(collection))
    }

    /// The time until which the first model waits for optional collections; `None` while it waits for required ones.
    pub(super) fn patience(&self, pace: &Pace) -> Option<Instant> {
        if !self.any_unknown() {
            return self.required_since;
        }
        let slow = self.comes(|_| true);
        let grace = match slow {
            // Kinds that are not kept on disk, such as Secrets without a key, deserve a short wait: the API server may
            // be available.
            _ if !self.trusted.is_empty() => pace.optional_grace.min(pace.restored_grace),
            true => pace.optional_grace.max(pace.optional_slow_grace),
            false => pace.optional_grace,
        };
        self.required_since.map(|since| since + grace)
    }

    /// Whether any of these collections has not been listed and does not fail.
    pub(super) fn comes(&self, these: impl Fn(&Collection) -> bool) -> bool {
        self.unsynced
            .iter()
            .any(|collection| these(collection) && self.unknown(collection) && !self.failing.contains_key(collection))
    }

    /// Whether reports to the cluster are written: the loop runs, and every collection has been listed, except those
    /// that are denied in a namespace of their own, and policies: an edge may have only the rights that an earlier
    /// release needs.
    pub(super) fn may_report(&self) -> bool {
        let is_spared = |collection: &Collection| {
            self.denied(collection) && (collection.namespace.is_some() || collection.kind.is_inherited_policy())
        };
        self.running && self.unsynced.iter().all(is_spared)
    }

    /// The same for objects of this namespace: without a collection of the namespace itself, reports could be wrong.
    pub(super) fn may_report_in(&self, namespace: &str) -> bool {
        self.may_report() && !self.unsynced.iter().any(|collection| collection.namespace.as_deref() == Some(namespace))
    }

    fn denied(&self, collection: &Collection) -> bool {
        self.failing.get(collection) == Some(&true)
    }

    /// Whether a required collection is not awaited although it is unknown: it is denied, and what is served without it
    /// is neither nothing nor open.
    fn spared(&self, collection: &Collection) -> bool {
        let of_kind = |other: &&Collection| other.kind == collection.kind;
        match (&collection.namespace, collection.kind.restricts_access()) {
            _ if !self.denied(collection) => false,
            (_, true) if self.optional.contains(&collection.kind) => true,
            (None, _) => false,
            (Some(namespace), true) => self.is_out_of_reach(namespace),
            (Some(_), false) => self.required.iter().filter(of_kind).any(|other| !self.unknown(other)),
        }
    }

    /// Whether the API server denies every kind of a namespace that it serves.
    fn is_out_of_reach(&self, namespace: &Arc<str>) -> bool {
        let of_namespace = self.namespaces.iter().filter(|(_, of)| of == namespace);
        let mut collections =
            of_namespace.map(|(kind, of)| Collection { kind: *kind, namespace: Some(Arc::clone(of)) });
        let is_silent = |collection: &Collection| self.denied(collection) && self.unknown(collection);
        collections.all(|collection| is_silent(&collection) || self.absent.contains(&collection))
    }

    fn reckon(&mut self, now: Instant) {
        self.required_since = if self.waits() { None } else { self.required_since.or(Some(now)) };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use tidegate_config::project::project;

    use self::Happens::{Denied, Fails, Listed, Recovers, Restored};
    use super::*;
    use crate::clock;

    const CLUSTER: [&str; 4] = ["Ingress", "Service", "EndpointSlice", "Secret"];
    const TWO_NAMESPACES: [&str; 6] =
        ["Ingress in a", "Service in a", "EndpointSlice in a", "Ingress in b", "Service in b", "EndpointSlice in b"];

    #[derive(Clone, Copy)]
    enum Happens {
        Listed,
        Fails,
        Denied,
        Recovers,
        Restored,
    }

    /// A collection by its name for people.
    fn collection(name: &str) -> Collection {
        let (kind, namespace) = name.split_once(" in ").map_or((name, None), |(kind, of)| (kind, Some(of.into())));
        let kind = Kind::ALL.into_iter().find(|it| it.as_str() == kind).expect("a kind");
        Collection { kind, namespace }
    }

    /// Applies one event a second. Checks until when the first model waits for optional collections, if it does not
    /// wait for required ones, and of which of the namespaces `a` and `b` objects are reported on once the loop runs.
    #[track_caller]
    fn check(collections: &[&str], events: &[(Happens, &[&str])], until: &str, reports: &str) {
        let start = clock::now();
        let mut now = start;
        let mut listing = Listing::new(collections.iter().map(|name| collection(name)));
        for (happens, name) in events.iter().flat_map(|(happens, names)| names.iter().map(|name| (*happens, *name))) {
            now += Duration::from_secs(1);
            let collection = collection(name);
            match happens {
                Listed => assert!(listing.synced(&collection, now), "the first list of {name}"),
                Fails => listing.fails(collection, false, now),
                Denied => listing.fails(collection, true, now),
                Recovers => listing.recovers(&collection, now),
                Restored => listing.restores(collection, 1000, now),
            }
        }
        let patience = listing.patience(&Pace::default());
        let got = patience.map_or_else(|| "no end".to_owned(), |end| format!("{} s", (end - start).as_secs()));
        assert_eq!(got, until);
        let reported =
            |listing: &Listing| ["a", "b"].map(|of| if listing.may_report_in(of) { of } else { "" }).concat();
        assert_eq!(reported(&listing), "", "no model, no reports");
        listing.start();
        assert_eq!(reported(&listing), reports);
    }

    #[test]
    fn the_first_model_waits_for_required_collections_without_limit_and_for_others_for_a_while() {
        check(&CLUSTER, &[], "no end", "");
        check(&CLUSTER, &[(Listed, &CLUSTER[..2])], "no end", "");
        check(&CLUSTER, &[(Listed, &CLUSTER[..2]), (Fails, &["EndpointSlice"])], "no end", "");
        check(&CLUSTER, &[(Listed, &CLUSTER[..3])], "123 s", "");
        check(&CLUSTER, &[(Listed, &CLUSTER[..3]), (Fails, &["Secret"])], "18 s", "");
        check(&CLUSTER, &[(Listed, &CLUSTER[..3]), (Denied, &["Secret"])], "18 s", "");
        check(&CLUSTER, &[(Listed, &CLUSTER[..3]), (Fails, &["Secret"]), (Recovers, &["Secret"])], "123 s", "");
        check(&CLUSTER, &[(Listed, &CLUSTER)], "3 s", "ab");
    }

    #[test]
    fn collections_are_required_where_routes_can_be() {
        let addresses = ["Ingress in a", "Service in a", "EndpointSlice in a", "Service in b", "EndpointSlice in b"];
        check(&addresses, &[(Listed, &addresses[..3])], "123 s", "");
        check(&addresses[1..], &[(Listed, &addresses[1..3])], "no end", "");
        check(&addresses[1..], &[(Listed, &addresses[1..])], "4 s", "ab");
        let by_name = ["Ingress in a", "Deployment in b"];
        check(&by_name, &[(Listed, &by_name[..1])], "no end", "");
        check(&by_name, &[(Listed, &by_name)], "2 s", "ab");
    }

    #[test]
    fn a_collection_that_is_denied_in_its_namespace_does_not_block_others() {
        let (a, b) = TWO_NAMESPACES.split_at(3);
        check(&TWO_NAMESPACES, &[(Listed, a)], "no end", "");
        check(&TWO_NAMESPACES, &[(Listed, a), (Denied, b)], "21 s", "a");
        check(&TWO_NAMESPACES, &[(Listed, a), (Fails, b)], "no end", "");
        check(&TWO_NAMESPACES, &[(Listed, a), (Denied, b), (Recovers, b)], "no end", "");
        check(&TWO_NAMESPACES, &[(Listed, a), (Denied, b), (Listed, b)], "6 s", "ab");
        check(&TWO_NAMESPACES, &[(Denied, &TWO_NAMESPACES)], "no end", "");
        check(&CLUSTER, &[(Listed, &CLUSTER[..2]), (Denied, &CLUSTER[2..])], "no end", "");
    }

    #[test]
    fn policies_of_access_are_awaited_like_services() {
        let with_policies = ["Service", "EndpointSlice", "RateLimitPolicy", "AuthPolicy"];
        let (others, auth) = with_policies.split_at(3);
        check(&with_policies, &[(Listed, &with_policies[..2])], "no end", "");
        check(&with_policies, &[(Listed, others)], "no end", "");
        check(&with_policies, &[(Listed, others), (Fails, auth)], "no end", "");
        check(&with_policies, &[(Listed, others), (Denied, auth)], "no end", "ab");
        check(&with_policies, &[(Listed, others), (Listed, auth)], "4 s", "ab");
        let waits = |optional: bool, denied: bool| {
            let by_default = [Kind::AuthPolicy].into_iter().filter(|_| optional);
            let mut listing = Listing::new([collection("AuthPolicy")]).with_optional(by_default);
            listing.fails(collection("AuthPolicy"), denied, clock::now());
            listing.waits()
        };
        assert_eq!([waits(false, true), waits(true, false), waits(true, true)], [true, true, false]);
    }

    #[test]
    fn policies_of_access_are_awaited_in_a_namespace_that_can_serve() {
        let all = [
            "Service in a",
            "EndpointSlice in a",
            "AuthPolicy in a",
            "Service in b",
            "HTTPRoute in b",
            "AuthPolicy in b",
        ];
        let (of_a, of_b) = all.split_at(3);
        let (others, auth) = all.split_at(5);
        check(&all, &[(Listed, others), (Denied, auth)], "no end", "a");
        check(&all, &[(Listed, of_a), (Denied, of_b)], "21 s", "a");
        check(&all, &[(Listed, of_a), (Denied, of_b), (Listed, &of_b[1..2])], "no end", "a");
        check(&all, &[(Listed, of_a), (Denied, of_b), (Recovers, &of_b[1..2])], "no end", "");
    }

    #[test]
    fn restored_collections_serve_but_nothing_is_reported_before_they_are_listed() {
        check(&CLUSTER, &[(Restored, &CLUSTER)], "3 s", "");
        check(&CLUSTER, &[(Restored, &CLUSTER[..3])], "5 s", "");
        check(&CLUSTER, &[(Restored, &CLUSTER), (Listed, &CLUSTER[..3])], "3 s", "");
        check(&CLUSTER, &[(Restored, &CLUSTER), (Listed, &CLUSTER)], "3 s", "ab");
    }

    #[test]
    fn restored_state_is_not_trusted_after_a_restart_of_the_loop() {
        let (now, ingresses) = (clock::now(), collection("Ingress"));
        let mut listing = Listing::new([ingresses.clone()]);
        listing.restores(ingresses.clone(), 1000, now);
        assert_eq!((listing.restored_as_of_s(&ingresses), listing.waits()), (Some(1000), false));
        listing.start();
        let mut listing = listing.still_serving([ingresses.clone()]);
        assert_eq!((listing.restored_as_of_s(&ingresses), listing.waits()), (Some(1000), true));
        assert!(!listing.running());
        listing.synced(&ingresses, now);
        assert_eq!((listing.restored_as_of_s(&ingresses), listing.waits()), (None, false));
    }

    /// Applies lists that lack so many of so many objects. Checks which of them need a confirmation.
    #[track_caller]
    fn check_doubts(lists: &[(usize, usize, bool)]) {
        let (of, pace) = (collection("Ingress"), Pace::default());
        let mut listing = Listing::new([of.clone()]);
        for (gone, known, unconfirmed) in lists {
            let asked = listing.must_be_confirmed(&of, (*gone, *known), &pace);
            assert_eq!(
                (asked, listing.is_unconfirmed(&of)),
                (*unconfirmed, *unconfirmed),
                "{gone} of {known} are gone"
            );
        }
        listing.must_be_confirmed(&of, (30, 30), &pace);
        listing.unserved(&of, clock::now());
        assert!(!listing.is_unconfirmed(&of));
    }

    #[test]
    fn a_list_that_removes_most_objects_is_confirmed_by_the_next_one() {
        check_doubts(&[(0, 0, false), (0, 30, false), (15, 30, false), (10, 12, false)]);
        check_doubts(&[(1, 1, true), (1, 1, false), (1, 1, true)]);
        check_doubts(&[(16, 30, true), (30, 30, false)]);
        check_doubts(&[(16, 30, true), (2, 30, false), (16, 30, true)]);
    }

    #[test]
    fn a_collection_of_all_namespaces_leaves_out_those_with_a_collection_of_their_own() {
        let mut world = World::default();
        for namespace in ["a", "b"] {
            let object = json!({"metadata": {"namespace": namespace, "name": "web", "resourceVersion": "1"}});
            world.apply(project(Kind::Service, object.to_string().as_bytes()).expect("a Service"));
        }
        let (all, own) = (collection("Service"), collection("Service in b"));
        let names = |listing: &Listing, of: &Collection| -> Vec<String> {
            listing.names_of(of, &world).map(|object| object.name.to_string()).collect()
        };
        let listing = Listing::new([all.clone(), own.clone()]);
        assert_eq!((names(&listing, &all), names(&listing, &own)), (vec!["a/web".into()], vec!["b/web".into()]));
        assert_eq!(names(&Listing::new([all.clone()]), &all), ["a/web", "b/web"]);
    }
}
