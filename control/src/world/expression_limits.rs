//! The limits of the expressions of several objects: their memory, of a namespace and in all, and the steps of those
//! for hosts, which a request for an unknown host tries one after the other. Equal expressions are kept once.
//!
//! If a limit is exceeded, the youngest objects lose their expressions, so that a new object never takes them from an
//! older one. Room that is left later serves an object when it arrives again: when it changes, or with the next list.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_config::model::{Expression, Subject};
use tidegate_config::object::ObjectRef;
use tidegate_config::project::{EXPRESSION_BYTES_MAX, HeldExpressions, NAMESPACE_EXPRESSION_BYTES_MAX};

/// The maximum number of steps of all expressions for hosts: 2 ms.
const HOST_STEPS_MAX: u64 = 1 << 20;

/// The maximum number of steps of the expressions for hosts of a namespace: a quarter of all.
const NAMESPACE_HOST_STEPS_MAX: u64 = HOST_STEPS_MAX / 4;

/// The limits.
#[derive(Clone, Copy, Debug)]
struct Limits {
    namespace_bytes: usize,
    bytes: usize,
    namespace_host_steps: u64,
    host_steps: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            namespace_bytes: NAMESPACE_EXPRESSION_BYTES_MAX,
            bytes: EXPRESSION_BYTES_MAX,
            namespace_host_steps: NAMESPACE_HOST_STEPS_MAX,
            host_steps: HOST_STEPS_MAX,
        }
    }
}

/// An object that must do without its expressions.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct WithoutExpressions {
    pub(super) object: ObjectRef,
    /// The limit, as a predicate.
    pub(super) why: String,
}

/// The expressions of all objects.
#[derive(Debug, Default)]
pub(super) struct ExpressionLimits {
    limits: Limits,
    objects: BTreeMap<ObjectRef, Held>,
    by_age: BTreeSet<ByAge>,
    /// The objects that must do without theirs.
    without: BTreeSet<ObjectRef>,
    /// The number of uses of each expression in each namespace.
    uses: BTreeMap<Expression, BTreeMap<Arc<str>, usize>>,
    by_namespace: BTreeMap<Arc<str>, OfNamespace>,
    bytes: usize,
    host_steps: u64,
}

/// The expressions of one namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct OfNamespace {
    /// An expression counts once.
    bytes: usize,
    host_steps: u64,
}

/// The expressions of one object.
#[derive(Debug)]
struct Held {
    created_s: i64,
    expressions: Box<[Expression]>,
}

impl Held {
    /// The steps of its expressions for hosts.
    fn host_steps(&self) -> u64 {
        let of_hosts = self.expressions.iter().filter(|it| it.comparison().subject == Subject::HostName);
        of_hosts.map(Expression::price).sum()
    }
}

/// Objects in the order of their ages.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct ByAge {
    created_s: i64,
    object: ObjectRef,
}

impl ExpressionLimits {
    /// Replaces an expression by the equal one that is kept.
    pub(super) fn share(&self, expression: &mut Expression) {
        if let Some((kept, _)) = self.uses.get_key_value(expression) {
            kept.clone_into(expression);
        }
    }

    /// Replaces the expressions of an object. Returns the objects that have to do without theirs from now on.
    pub(super) fn put(&mut self, object: &ObjectRef, held: Option<HeldExpressions<'_>>) -> Vec<WithoutExpressions> {
        self.remove(object);
        let Some(HeldExpressions { created_s, all }) = held else { return Vec::new() };
        let distinct: BTreeSet<&Expression> = all.into_iter().collect();
        let expressions = distinct.into_iter().cloned().collect();
        self.insert(object.clone(), Held { created_s, expressions });
        self.make_room(&object.name.namespace)
    }

    /// Returns `true` for an object that must do without its expressions.
    pub(super) fn lacks(&self, object: &ObjectRef) -> bool {
        self.without.contains(object)
    }

    /// Removes the expressions of an object.
    pub(super) fn remove(&mut self, object: &ObjectRef) {
        self.without.remove(object);
        drop(self.take(object));
    }

    fn insert(&mut self, object: ObjectRef, held: Held) {
        let (namespace, host_steps) = (&object.name.namespace, held.host_steps());
        held.expressions.iter().for_each(|expression| self.add(expression, namespace));
        self.host_steps += host_steps;
        self.by_namespace.entry(Arc::clone(namespace)).or_default().host_steps += host_steps;
        self.by_age.insert(ByAge { created_s: held.created_s, object: object.clone() });
        self.objects.insert(object, held);
    }

    fn take(&mut self, object: &ObjectRef) -> Option<Held> {
        let held = self.objects.remove(object)?;
        let (namespace, host_steps) = (&object.name.namespace, held.host_steps());
        self.by_age.remove(&ByAge { created_s: held.created_s, object: object.clone() });
        held.expressions.iter().for_each(|expression| self.release(expression, namespace));
        self.host_steps -= host_steps;
        if let Entry::Occupied(mut of_namespace) = self.by_namespace.entry(Arc::clone(namespace)) {
            of_namespace.get_mut().host_steps -= host_steps;
            if *of_namespace.get() == OfNamespace::default() {
                of_namespace.remove();
            }
        }
        Some(held)
    }

    fn add(&mut self, expression: &Expression, namespace: &Arc<str>) {
        let uses = match self.uses.entry(expression.clone()) {
            Entry::Occupied(uses) => uses.into_mut(),
            Entry::Vacant(uses) => {
                self.bytes += expression.bytes();
                uses.insert(BTreeMap::new())
            }
        };
        match uses.entry(Arc::clone(namespace)) {
            Entry::Occupied(mut count) => *count.get_mut() += 1,
            Entry::Vacant(count) => {
                count.insert(1);
                self.by_namespace.entry(Arc::clone(namespace)).or_default().bytes += expression.bytes();
            }
        }
    }

    fn release(&mut self, expression: &Expression, namespace: &Arc<str>) {
        let Entry::Occupied(mut uses) = self.uses.entry(expression.clone()) else { return };
        let Entry::Occupied(mut count) = uses.get_mut().entry(Arc::clone(namespace)) else { return };
        *count.get_mut() -= 1;
        if *count.get() > 0 {
            return;
        }
        count.remove();
        if uses.get().is_empty() {
            uses.remove();
            self.bytes -= expression.bytes();
        }
        if let Some(of_namespace) = self.by_namespace.get_mut(namespace) {
            of_namespace.bytes -= expression.bytes();
        }
    }

    /// Takes the expressions from the youngest objects until no limit is exceeded. Those of them get theirs back that
    /// still fit, because other objects have the same ones.
    fn make_room(&mut self, namespace: &Arc<str>) -> Vec<WithoutExpressions> {
        let mut taken = Vec::new();
        while let Some(exceeded) = self.exceeded(namespace) {
            let mut youngest = self.by_age.iter().rev().map(|it| &it.object);
            let Some(object) = youngest.find(|object| self.counts(object, &exceeded)).cloned() else { break };
            let why = self.why(&exceeded);
            let Some(held) = self.take(&object) else { break };
            taken.push((WithoutExpressions { object, why }, held));
        }
        let mut without = Vec::new();
        // The oldest first.
        while let Some((loser, held)) = taken.pop() {
            self.insert(loser.object.clone(), held);
            if self.exceeded(namespace).is_some() {
                self.remove(&loser.object);
                self.without.insert(loser.object.clone());
                without.push(loser);
            }
        }
        without
    }

    /// A limit that is exceeded, if there is one, after an object of a namespace has changed.
    fn exceeded<'n>(&self, namespace: &'n Arc<str>) -> Option<Exceeded<'n>> {
        let (limits, of_namespace) = (self.limits, self.by_namespace.get(namespace).copied().unwrap_or_default());
        [
            (of_namespace.bytes > limits.namespace_bytes, Exceeded::NamespaceBytes(namespace)),
            (of_namespace.host_steps > limits.namespace_host_steps, Exceeded::NamespaceHostSteps(namespace)),
            (self.bytes > limits.bytes, Exceeded::Bytes),
            (self.host_steps > limits.host_steps, Exceeded::HostSteps),
        ]
        .into_iter()
        .find_map(|(is_exceeded, limit)| is_exceeded.then_some(limit))
    }

    /// Whether an object contributes to what exceeds a limit.
    fn counts(&self, object: &ObjectRef, exceeded: &Exceeded<'_>) -> bool {
        let is_of = |namespace: &Arc<str>| object.name.namespace == *namespace;
        let has_hosts = || self.objects.get(object).is_some_and(|held| held.host_steps() > 0);
        match exceeded {
            Exceeded::NamespaceBytes(namespace) => is_of(namespace),
            Exceeded::NamespaceHostSteps(namespace) => is_of(namespace) && has_hosts(),
            Exceeded::Bytes => true,
            Exceeded::HostSteps => has_hosts(),
        }
    }

    /// The limit as a predicate of an expression that exceeds it.
    fn why(&self, exceeded: &Exceeded<'_>) -> String {
        let Limits { namespace_bytes, bytes, namespace_host_steps, host_steps } = self.limits;
        match exceeded {
            Exceeded::NamespaceBytes(_) => {
                format!("exceeds the limit of {namespace_bytes} bytes of all expressions of a namespace")
            }
            Exceeded::NamespaceHostSteps(_) => {
                format!("exceeds the limit of {namespace_host_steps} steps of all expressions for hosts of a namespace")
            }
            Exceeded::Bytes => format!("exceeds the limit of {bytes} bytes of all expressions"),
            Exceeded::HostSteps => format!("exceeds the limit of {host_steps} steps of all expressions for hosts"),
        }
    }
}

/// A limit that is exceeded.
enum Exceeded<'n> {
    NamespaceBytes(&'n Arc<str>),
    NamespaceHostSteps(&'n Arc<str>),
    Bytes,
    HostSteps,
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate_config::model::{Comparison, Extent, RegexCase, Subject};
    use tidegate_config::object::{Kind, ObjectName};
    use tidegate_config::project::{Projected, project};

    use super::*;
    use crate::world::World;

    /// An expression for paths, or without a slash for hosts.
    fn expression(pattern: &str) -> Expression {
        let subject = if pattern.starts_with('/') { Subject::Path } else { Subject::HostName };
        let comparison = Comparison { subject, case: RegexCase::Sensitive, extent: Extent::Whole };
        Expression::new(pattern, comparison).unwrap()
    }

    /// Has room for two expressions of a namespace, and for three in all.
    struct Bench(ExpressionLimits);

    impl Bench {
        fn new() -> Self {
            let of = |patterns: [&str; 2]| patterns.map(|pattern| expression(pattern).bytes()).into_iter().sum();
            let [namespace_bytes, other] = [["/a1", "/a2"], ["/b1", "/b2"]].map(of);
            let limits = Limits { namespace_bytes, bytes: namespace_bytes + other / 2, ..Limits::default() };
            Self(ExpressionLimits { limits, ..ExpressionLimits::default() })
        }

        /// Puts an object `namespace/name` of this age; returns the objects that lose their expressions.
        fn put(&mut self, name: &str, created_s: i64, patterns: &[&str]) -> Vec<String> {
            let compiled: Vec<Expression> = patterns.iter().map(|pattern| expression(pattern)).collect();
            let held = HeldExpressions { created_s, all: compiled.iter().collect() };
            let without = self.0.put(&object(name), Some(held).filter(|held| !held.all.is_empty()));
            self.check_sums();
            without.into_iter().map(|it| format!("{}/{}", it.object.name.namespace, it.object.name.name)).collect()
        }

        /// The counted bytes are those of the objects.
        fn check_sums(&self) {
            let (mut all, mut by_namespace) = (BTreeSet::new(), BTreeMap::<_, (BTreeSet<&Expression>, u64)>::new());
            for (object, held) in &self.0.objects {
                all.extend(&held.expressions);
                let (distinct, host_steps) = by_namespace.entry(Arc::clone(&object.name.namespace)).or_default();
                distinct.extend(&held.expressions);
                *host_steps += held.host_steps();
            }
            let bytes = |of: &BTreeSet<&Expression>| of.iter().map(|it| it.bytes()).sum::<usize>();
            assert_eq!(self.0.bytes, bytes(&all));
            let of = |(distinct, host_steps): &_| OfNamespace { bytes: bytes(distinct), host_steps: *host_steps };
            assert_eq!(self.0.by_namespace, by_namespace.iter().map(|(it, sums)| (Arc::clone(it), of(sums))).collect());
            assert_eq!(self.0.by_age.len(), self.0.objects.len());
            assert_eq!(self.0.host_steps, self.0.objects.values().map(Held::host_steps).sum::<u64>());
        }
    }

    fn object(name: &str) -> ObjectRef {
        let (namespace, name) = name.split_once('/').unwrap();
        ObjectRef::new(Kind::HttpRoute, ObjectName::new(namespace, name))
    }

    #[test]
    fn the_youngest_of_a_namespace_lose_their_expressions() {
        let mut bench = Bench::new();
        assert!(bench.put("a/middle", 2, &["/a1"]).is_empty());
        assert!(bench.put("a/younger", 3, &["/a2"]).is_empty());
        assert_eq!(bench.put("a/youngest", 4, &["/a3"]), ["a/youngest"]);
        assert_eq!(bench.put("a/oldest", 1, &["/a4"]), ["a/younger"]);
        assert_eq!(bench.put("a/oldest", 1, &["/a4", "/a5"]), ["a/middle"]);
        assert!(bench.put("b/other", 9, &["/b1"]).is_empty());
    }

    #[test]
    fn an_object_that_shares_all_its_expressions_keeps_them() {
        let mut bench = Bench::new();
        assert!(bench.put("a/oldest", 1, &["/a1"]).is_empty());
        assert!(bench.put("a/middle", 2, &["/a2"]).is_empty());
        assert!(bench.put("a/sharing", 9, &["/a1", "/a2"]).is_empty());
        assert_eq!(bench.put("a/younger", 5, &["/a3"]), ["a/younger"]);
        assert_eq!(bench.put("a/older", 0, &["/a3", "/a4"]), ["a/oldest", "a/middle", "a/sharing"]);
    }

    #[test]
    fn the_youngest_of_all_lose_their_expressions() {
        let mut bench = Bench::new();
        assert!(bench.put("a/one", 1, &["/a1", "/a2"]).is_empty());
        assert!(bench.put("b/three", 3, &["/b1"]).is_empty());
        assert_eq!(bench.put("c/two", 2, &["/c1"]), ["b/three"]);
        bench.0.remove(&object("a/one"));
        assert!(bench.put("b/three", 3, &["/b1"]).is_empty(), "there is room again");
    }

    #[test]
    fn the_youngest_with_expressions_for_hosts_lose_them() {
        let mut bench = Bench::new();
        bench.0.limits = Limits { host_steps: 600, ..Limits::default() };
        assert!(bench.put("a/one", 1, &["a.*"]).is_empty());
        assert!(bench.put("b/three", 3, &["a.*"]).is_empty());
        assert!(bench.put("c/youngest", 9, &["/c"]).is_empty());
        assert_eq!(bench.put("b/two", 2, &["c.*"]), ["b/three"]);
        assert_eq!(bench.put("b/four", 4, &["d.*"]), ["b/four"]);
    }

    #[test]
    fn a_namespace_has_a_share_of_the_steps_for_hosts() {
        let mut bench = Bench::new();
        bench.0.limits = Limits { namespace_host_steps: 600, ..Limits::default() };
        assert!(bench.put("a/one", 1, &["a.*"]).is_empty());
        assert!(bench.put("a/two", 2, &["b.*"]).is_empty());
        assert!(bench.put("a/path", 9, &["/c"]).is_empty());
        assert_eq!(bench.put("a/three", 3, &["c.*"]), ["a/three"]);
        assert!(bench.put("b/one", 4, &["c.*"]).is_empty(), "another namespace has its own share");
        assert_eq!(bench.put("a/zero", 0, &["d.*"]), ["a/two"]);
    }

    /// An HTTPRoute `a/NAME` of this age with a path expression, and with a literal path.
    fn route(name: &str, created_s: u8, pattern: &str, literal: &str) -> Projected {
        let created = format!("2026-01-01T00:00:{created_s:02}Z");
        let metadata = json!({"namespace": "a", "name": name, "resourceVersion": "1", "creationTimestamp": created});
        let path = |kind: &str, value: &str| json!({"matches": [{"path": {"type": kind, "value": value}}]});
        let rules = [path("RegularExpression", pattern), path("Exact", literal)];
        let route = json!({"metadata": metadata, "spec": {"rules": rules}});
        project(Kind::HttpRoute, route.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn an_object_without_its_expressions_is_held_as_long_as_the_rest_is_equal() {
        let mut world = World::default();
        world.expressions.limits.namespace_bytes = expression("/a.").bytes();
        world.apply(route("older", 1, "/a.", "/x"));
        world.apply(route("younger", 2, "/b.", "/x"));
        assert!(world.expressions.lacks(&object("a/younger")) && !world.expressions.lacks(&object("a/older")));
        for (projected, want) in [
            (route("older", 1, "/a.", "/x"), true),
            (route("older", 1, "/c.", "/x"), false),
            (route("younger", 2, "/b.", "/x"), true),
            (route("younger", 2, "/b.", "/y"), false),
            (route("none", 3, "/b.", "/x"), false),
        ] {
            assert_eq!(world.holds_as(&projected), want, "{projected:?}");
        }
    }

    #[test]
    fn equal_expressions_are_kept_once() {
        let mut bench = Bench::new();
        let names: Vec<String> = (0..9).map(|number| format!("a/{number}")).collect();
        for name in &names {
            assert!(bench.put(name, 1, &["/a1", "/a1", "/a2"]).is_empty());
        }
        let mut other = expression("/a1");
        bench.0.share(&mut other);
        let kept = bench.0.uses.keys().find(|it| it.pattern() == "/a1").unwrap();
        assert!(kept.is_same(&other));
        for name in &names {
            assert!(bench.put(name, 1, &[]).is_empty());
        }
        assert!(bench.0.uses.is_empty() && bench.0.by_namespace.is_empty() && bench.0.bytes == 0);
    }
}
