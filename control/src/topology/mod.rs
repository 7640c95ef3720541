//! Topology: the claims of every object and its dependencies, in both directions. Dependencies on objects that do not
//! exist are kept, so that the dependents are found when such an object is created.

mod attached;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use tidegate_config::model::auth::KeySource;
use tidegate_config::model::{BindKey, BindProtocol, ScopeId, Settings, StreamRoute, VirtualHost};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::gateway::{LabelTerm, Labels};

use crate::attachment::{Attachment, BindClaim, Claim, ClaimTerms, GlobalClaim, Key, PolicyClaim, Report, Selected};
use crate::recent::Recent;

/// The attachments of all objects, and an index of the objects by key.
#[derive(Debug, Default)]
pub struct Topology {
    /// Boxed, because nodes of the map that grow one by one are half empty.
    attachments: BTreeMap<ObjectRef, Box<Attachment>>,
    /// The keys of the attachments. One set of pairs, because most keys have one or two dependents, and a set for each
    /// key would cost ten times its content.
    by_key: BTreeSet<(Key, ObjectRef)>,
    /// The number of objects attached to each listener that has any. Kept, because each attached route changes a status
    /// that counts them.
    attached: BTreeMap<Key, usize>,
    /// The claims that were added, replaced or removed since the last [`Topology::take_changed`].
    moved: BTreeSet<(VirtualHost, ObjectRef)>,
    /// The reports on recent objects without findings: most objects with the same parents have the same.
    recent_reports: Recent<Report>,
}

impl Topology {
    /// Adds the attachments of further objects, none of them empty. All at once costs less than one by one, and uses
    /// memory better.
    pub(crate) fn add_all(&mut self, mut attached: Vec<(ObjectRef, Attachment)>) {
        attached.iter_mut().for_each(|(_, attachment)| self.share_report(attachment));
        if attached.is_empty() {
            return;
        }
        attached.iter().for_each(|(_, attachment)| self.count_attached(&[], &attachment.listeners));
        let keys = attached.iter().flat_map(|(object, it)| it.keys().map(|key| (key, object.clone())));
        let by_key: Vec<_> = keys.collect();
        self.by_key = std::mem::take(&mut self.by_key).into_iter().chain(by_key).collect();
        let attached = attached.into_iter().map(|(object, attachment)| (object, Box::new(attachment)));
        self.attachments = std::mem::take(&mut self.attachments).into_iter().chain(attached).collect();
    }

    /// Replaces the attachment of an object and returns the previous one; `None` if that is equal and stays. The terms
    /// of unchanged claims stay the same allocations, and so do equal routes of changed ones.
    pub fn replace(&mut self, object: &ObjectRef, mut attachment: Attachment) -> Option<Attachment> {
        let entry = self.attachments.get_mut(object);
        let is_same = match &entry {
            Some(before) => ***before == attachment,
            None => attachment == Attachment::default(),
        };
        if is_same {
            return None;
        }
        let before = entry.map(|before| std::mem::take(&mut **before)).unwrap_or_default();
        self.share_report(&mut attachment);
        // Terms that claims to several hosts share are still shared afterwards.
        let mut kept: Vec<(Arc<ClaimTerms>, Arc<ClaimTerms>)> = Vec::new();
        for claim in &mut attachment.claims {
            let same = before.claim(&claim.host);
            if let Some(same) = same.filter(|same| *same == claim) {
                claim.clone_from(same);
                continue;
            }
            self.moved.insert((claim.host.clone(), object.clone()));
            if let Some(same) = same {
                let known = kept.iter().find(|(made, _)| Arc::ptr_eq(made, &claim.terms)).map(|(_, kept)| kept);
                let terms = known.cloned().unwrap_or_else(|| {
                    let terms = Arc::new(claim.terms.with_routes_of(same));
                    kept.push((Arc::clone(&claim.terms), Arc::clone(&terms)));
                    terms
                });
                claim.terms = terms;
            }
        }
        let gone = before.claims.iter().filter(|claim| attachment.claim(&claim.host).is_none());
        self.moved.extend(gone.map(|claim| (claim.host.clone(), object.clone())));
        for key in before.keys_not_in(&attachment) {
            self.by_key.remove(&(key, object.clone()));
        }
        for key in attachment.keys_not_in(&before) {
            self.by_key.insert((key, object.clone()));
        }
        self.count_attached(&before.listeners, &attachment.listeners);
        if attachment.is_empty() {
            self.attachments.remove(object);
        } else if let Some(entry) = self.attachments.get_mut(object) {
            **entry = attachment;
        } else {
            self.attachments.insert(object.clone(), Box::new(attachment));
        }
        Some(before)
    }

    fn count_attached(&mut self, before: &[Key], after: &[Key]) {
        for listener in after.iter().filter(|listener| !before.contains(listener)) {
            *self.attached.entry(listener.clone()).or_default() += 1;
        }
        for listener in before.iter().filter(|listener| !after.contains(listener)) {
            let left = self.attached.remove(listener).unwrap_or_default().saturating_sub(1);
            if left > 0 {
                self.attached.insert(listener.clone(), left);
            }
        }
    }

    fn share_report(&mut self, attachment: &mut Attachment) {
        if let Some(report) = attachment.report.as_mut().filter(|report| report.findings.is_empty()) {
            self.recent_reports.share(report);
        }
    }

    /// The claims that have changed since the last call, by host and object.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<(VirtualHost, ObjectRef)> {
        std::mem::take(&mut self.moved)
    }

    /// The attachment of an object, if it is not empty.
    #[must_use]
    pub fn get(&self, object: &ObjectRef) -> Option<&Attachment> {
        self.attachments.get(object).map(AsRef::as_ref)
    }

    /// The dependencies of an object, in ascending order.
    #[must_use]
    pub fn links_of(&self, object: &ObjectRef) -> &[Key] {
        self.attachments.get(object).map_or(&[], |attachment| &attachment.links)
    }

    /// The non-empty attachments, in the order of the objects.
    pub fn attachments(&self) -> impl Iterator<Item = (&ObjectRef, &Attachment)> {
        self.attachments.iter().map(|(object, attachment)| (object, &**attachment))
    }

    /// The claims to a host.
    pub fn claims_of<'t>(&'t self, host: &VirtualHost) -> impl Iterator<Item = &'t Claim> + use<'t> {
        let host = host.clone();
        let claimants = self.dependents(&Key::Host(host.clone()));
        claimants.filter_map(move |object| self.attachments.get(object)?.claim(&host))
    }

    /// The objects under a key, in ascending order.
    pub fn dependents<'t>(&'t self, key: &Key) -> impl Iterator<Item = &'t ObjectRef> + use<'t> {
        let (key, first) = (key.clone(), ObjectRef::new(Kind::FIRST, ObjectName::default()));
        self.by_key.range((key.clone(), first)..).take_while(move |(of, _)| *of == key).map(|(_, object)| object)
    }

    /// The objects that depend on any object of a kind, with duplicates.
    pub fn dependents_of_kind(&self, kind: Kind) -> impl Iterator<Item = &ObjectRef> {
        let nobody = || ObjectRef::new(Kind::FIRST, ObjectName::default());
        let first = Key::Object(ObjectRef::new(kind, ObjectName::default()));
        let by_name = self.by_key.range((first, nobody())..);
        let by_name = by_name.take_while(move |(key, _)| key.object(kind).is_some());
        let of_namespace = self.by_key.range((Key::in_namespace(kind, &Arc::default()), nobody())..);
        let of_namespace = of_namespace.take_while(move |(key, _)| matches!(key, Key::InNamespace(of) if of.0 == kind));
        let first = Selected::first(kind, &Arc::default(), LabelTerm::Any);
        let selected = self.by_key.range((first, nobody())..);
        let selected = selected.take_while(move |(key, _)| matches!(key, Key::Selected(of) if of.kind == kind));
        let all = by_name.chain(of_namespace).chain(selected).map(|(_, object)| object);
        all.chain(self.dependents(&Key::Any(kind)))
    }

    /// The objects with a selector that selects objects of a kind with these labels in a namespace.
    pub fn selecting(&self, kind: Kind, namespace: &Arc<str>, labels: &Labels) -> BTreeSet<ObjectRef> {
        let mut objects = BTreeSet::new();
        for term in LabelTerm::of(labels) {
            let first =
                (Selected::first(kind, namespace, term.clone()), ObjectRef::new(Kind::FIRST, ObjectName::default()));
            for (key, object) in self.by_key.range(first..) {
                let Key::Selected(of) = key else { break };
                if (of.kind, &of.namespace, &of.term) != (kind, namespace, &term) {
                    break;
                }
                if of.selector.selects(labels) {
                    objects.insert(object.clone());
                }
            }
        }
        objects
    }

    /// The number of objects attached to a listener.
    #[must_use]
    pub fn attached_count(&self, listener: &Key) -> usize {
        self.attached.get(listener).copied().unwrap_or_default()
    }

    /// Whether any object is under a key.
    #[must_use]
    pub fn has_dependents(&self, key: &Key) -> bool {
        self.dependents(key).next().is_some()
    }

    /// The objects of a kind with dependents, without duplicates, in ascending order.
    pub fn wanted(&self, kind: Kind) -> impl Iterator<Item = &ObjectRef> {
        let first = Key::Object(ObjectRef::new(kind, ObjectName::default()));
        distinct(self.from(first, move |key| key.object(kind)))
    }

    /// The DNS names with dependents, without duplicates, in ascending order.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        distinct(self.from(Key::of_name(&Arc::default()), Key::name))
    }

    /// The sources of keys with dependents, without duplicates, in ascending order.
    pub fn key_sources(&self) -> impl Iterator<Item = &KeySource> {
        distinct(self.from(Key::KeySet(Box::new(KeySource::Jwks(Arc::default()))), Key::key_source))
    }

    /// The first object with an attachment after another object, or of all.
    pub(crate) fn after(&self, last: Option<&ObjectRef>) -> Option<&ObjectRef> {
        let beyond = (last.map_or(Unbounded, Excluded), Unbounded);
        self.attachments.range::<ObjectRef, _>(beyond).next().map(|(object, _)| object)
    }

    /// The values of the keys from `first` on, as long as `of` returns one; with duplicates for a key of several
    /// objects.
    fn from<'t, T: 't>(&'t self, first: Key, of: impl Fn(&'t Key) -> Option<&'t T>) -> impl Iterator<Item = &'t T> {
        let first = (first, ObjectRef::new(Kind::FIRST, ObjectName::default()));
        self.by_key.range(first..).map_while(move |(key, _)| of(key))
    }

    /// The first claimed host after another one, or of all.
    pub(crate) fn host_after(&self, last: Option<&VirtualHost>) -> Option<&VirtualHost> {
        let first = last.cloned().unwrap_or_else(VirtualHost::first);
        self.from(Key::Host(first), Key::host).find(|host| Some(*host) != last)
    }

    /// The settings of a scope by object, in the order of the objects.
    pub(crate) fn settings_of<'t>(
        &'t self,
        scope: &ScopeId,
    ) -> impl Iterator<Item = (&'t ObjectRef, &'t Arc<Settings>)> + use<'t> {
        let scope = scope.clone();
        let objects = self.dependents(&Key::Scope(Box::new(scope.clone())));
        objects.filter_map(move |object| Some((object, self.attachments.get(object)?.settings_of(&scope)?)))
    }

    /// The first scope with settings after another one, or of all.
    pub(crate) fn scope_after(&self, last: Option<&ScopeId>) -> Option<&ScopeId> {
        let first = last.cloned().unwrap_or_default();
        self.from(Key::Scope(Box::new(first)), Key::scope).find(|scope| Some(*scope) != last)
    }

    /// The part of each object in the global settings, in the order of the objects.
    pub(crate) fn globals(&self) -> impl Iterator<Item = (&ObjectRef, &GlobalClaim)> {
        let objects = self.dependents(&Key::Globals);
        objects.filter_map(|object| Some((object, &**self.attachments.get(object)?.other_claims().globals.as_ref()?)))
    }

    /// The policies that attach to an object or to a section of it.
    pub(crate) fn policies_of<'t>(&'t self, target: &ObjectRef) -> impl Iterator<Item = &'t PolicyClaim> + use<'t> {
        let target = target.clone();
        let objects = self.dependents(&Key::Policies(Box::new(target.clone())));
        let claims =
            objects.filter_map(|object| self.attachments.get(object)).flat_map(|it| &it.other_claims().policies);
        claims.filter(move |claim| claim.target.object == target)
    }

    /// The claims of the objects whose annotation names a policy.
    pub(crate) fn claims_naming<'t>(&'t self, policy: &ObjectRef) -> impl Iterator<Item = &'t PolicyClaim> + use<'t> {
        let policy = policy.clone();
        let dependents = self.dependents(&Key::Object(policy.clone()));
        let claims =
            dependents.filter_map(|object| self.attachments.get(object)).flat_map(|it| &it.other_claims().policies);
        claims.filter(move |claim| claim.policy == policy)
    }

    /// Whether policies attach to an object or to a section of it.
    pub(crate) fn has_policies(&self, target: &ObjectRef) -> bool {
        self.has_dependents(&Key::Policies(Box::new(target.clone())))
    }

    /// Whether policies attach to anything: in most clusters they do not.
    pub(crate) fn has_any_policies(&self) -> bool {
        self.policy_target_after(None).is_some()
    }

    /// The first object that policies attach to after another one, or of all.
    pub(crate) fn policy_target_after(&self, last: Option<&ObjectRef>) -> Option<&ObjectRef> {
        let first = last.cloned().unwrap_or_else(|| ObjectRef::new(Kind::FIRST, ObjectName::default()));
        self.from(Key::Policies(Box::new(first)), Key::policy_target).find(|target| Some(*target) != last)
    }

    /// The routes of a Gateway that policies of their own attach to, in the order of their objects.
    ///
    /// Few routes of a large Gateway may have policies, or few of many objects with policies may be routes of this
    /// Gateway: both lists are gone through in step, and the one that ends first is the answer.
    pub(crate) fn routes_with_policies(&self, gateway: &ObjectName) -> Vec<&ObjectRef> {
        let below = Key::GatewayListeners(gateway.clone());
        let mut routes = self.dependents(&below).filter(|object| object.kind.is_route());
        let mut target = self.policy_target_after(None);
        let (mut of_routes, mut of_targets) = (Vec::new(), Vec::new());
        loop {
            match routes.next() {
                None => return of_routes,
                Some(route) => of_routes.extend(self.has_policies(route).then_some(route)),
            }
            match target {
                None => return of_targets,
                Some(own) => {
                    let is_below = own.kind.is_route() && self.links_of(own).contains(&below);
                    of_targets.extend(is_below.then_some(own));
                    target = self.policy_target_after(Some(own));
                }
            }
        }
    }

    /// The routes of the connections for a host, in the order of their objects.
    pub(crate) fn streams_of<'t>(&'t self, host: &VirtualHost) -> impl Iterator<Item = &'t Arc<StreamRoute>> + use<'t> {
        let host = host.clone();
        let objects = self.dependents(&Key::Stream(host.clone()));
        objects.filter_map(move |object| self.attachments.get(object)?.stream(&host))
    }

    /// The first host with claimed connections after another one, or of all.
    pub(crate) fn stream_after(&self, last: Option<&VirtualHost>) -> Option<&VirtualHost> {
        let first = last.cloned().unwrap_or_else(VirtualHost::first);
        self.from(Key::Stream(first), Key::stream).find(|host| Some(*host) != last)
    }

    /// The listeners of each object on a socket, in the order of the objects.
    pub(crate) fn binds_of<'t>(
        &'t self,
        bind: &BindKey,
    ) -> impl Iterator<Item = (&'t ObjectRef, &'t BindClaim)> + use<'t> {
        let bind = *bind;
        let objects = self.dependents(&Key::Bind(Box::new(bind)));
        objects.filter_map(move |object| Some((object, self.attachments.get(object)?.bind(&bind)?)))
    }

    /// The first socket with listeners after another one, or of all.
    pub(crate) fn bind_after(&self, last: Option<&BindKey>) -> Option<&BindKey> {
        let least = BindKey { address: ([0; 4], 0).into(), protocol: BindProtocol::Http };
        self.from(Key::Bind(Box::new(last.copied().unwrap_or(least))), Key::bind).find(|bind| Some(*bind) != last)
    }

    /// Every object with each of its keys, for dumps.
    pub fn edges(&self) -> impl Iterator<Item = (&ObjectRef, Key)> {
        self.attachments.iter().flat_map(|(object, attachment)| attachment.keys().map(move |key| (object, key)))
    }
}

/// Removes consecutive duplicates.
fn distinct<'t, T: PartialEq + ?Sized + 't>(values: impl Iterator<Item = &'t T>) -> impl Iterator<Item = &'t T> {
    let mut last = None;
    values.filter(move |value| last.replace(*value) != Some(*value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::ListenerRef;

    fn slice(name: &str) -> ObjectRef {
        ObjectRef::new(Kind::EndpointSlice, ObjectName::new("shop", name))
    }

    fn endpoints(name: &str) -> Key {
        Key::EndpointsOf(ObjectName::new("shop", name))
    }

    fn linked(names: &[&str]) -> Attachment {
        Attachment { links: names.iter().map(|name| endpoints(name)).collect(), ..Attachment::default() }
    }

    #[track_caller]
    fn check(topology: &Topology, key: &str, want: &[&str]) {
        let got: Vec<&str> = topology.dependents(&endpoints(key)).map(|object| &*object.name.name).collect();
        assert_eq!(got, want, "{key}");
    }

    /// Attaches the routes `a`, `b` and so on to these listeners, and checks the counts of the listeners `x` and `y`.
    #[track_caller]
    fn check_counts(topology: &mut Topology, listeners: &[&str], want: [usize; 2]) {
        let listener = |name: &str| {
            let owner = ObjectRef::new(Kind::Gateway, ObjectName::new("shop", "edge"));
            Key::Listener(Arc::new(ListenerRef { owner, section: name.into() }))
        };
        for (route, to) in ["a", "b", "c"].into_iter().zip(listeners) {
            let to = to.chars().map(|name| listener(&name.to_string())).collect();
            let route = ObjectRef::new(Kind::HttpRoute, ObjectName::new("shop", route));
            topology.replace(&route, Attachment { listeners: to, ..Attachment::default() });
        }
        assert_eq!(["x", "y"].map(|name| topology.attached_count(&listener(name))), want);
        assert_eq!(topology.attached.len(), want.into_iter().filter(|count| *count > 0).count());
    }

    #[test]
    fn the_routes_of_a_listener_are_counted() {
        let mut topology = Topology::default();
        check_counts(&mut topology, &["x", "xy", "y"], [2, 2]);
        check_counts(&mut topology, &["xy", "xy", "y"], [2, 3]);
        check_counts(&mut topology, &["", "y", "y"], [0, 2]);
        check_counts(&mut topology, &["", "", ""], [0, 0]);
        let listener = Key::Listener(Arc::new(ListenerRef { owner: slice("a"), section: "x".into() }));
        let attached =
            |name| (slice(name), Attachment { listeners: [listener.clone()].into(), ..Attachment::default() });
        topology.add_all(vec![attached("a"), attached("b")]);
        assert_eq!(topology.attached_count(&listener), 2);
    }

    #[test]
    fn a_replaced_attachment_is_found_only_under_its_new_keys() {
        let mut topology = Topology::default();
        topology.replace(&slice("a"), linked(&["x", "y"]));
        topology.replace(&slice("b"), linked(&["x"]));
        check(&topology, "x", &["a", "b"]);
        let before = topology.replace(&slice("a"), linked(&["z"]));
        assert_eq!(before, Some(linked(&["x", "y"])));
        assert_eq!(topology.replace(&slice("a"), linked(&["z"])), None);
        check(&topology, "x", &["b"]);
        check(&topology, "y", &[]);
        check(&topology, "z", &["a"]);
        topology.replace(&slice("a"), Attachment::default());
        topology.replace(&slice("b"), Attachment::default());
        assert_eq!(topology.edges().count(), 0);
        assert!(topology.by_key.is_empty());
    }
}
