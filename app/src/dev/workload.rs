//! The replicas of a Deployment: their number, their template, and the changes to make. Pure: processes are started and
//! ended elsewhere.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::Value;
use tidegate_config::object::ObjectName;

use super::objects::set_name;
use super::strategy::Strategy;

/// The maximum number of processes; a Deployment that wants more gets the remaining ones.
pub(super) const REPLICAS_MAX: usize = 100;

/// The desired state of a Deployment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Desired {
    pub(super) name: ObjectName,
    pub(super) replicas: usize,
    /// The revision of the template: a changed one replaces every replica.
    pub(super) revision: u32,
    pub(super) labels: BTreeMap<String, String>,
    /// The annotations that its ReplicaSet gets too.
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) uid: String,
    /// The selector of the Deployment.
    pub(super) selector: Value,
    pub(super) template: Arc<Value>,
    /// The number of old templates to remember.
    pub(super) history: usize,
    /// The strategy for replacing replicas of older templates.
    pub(super) strategy: Strategy,
}

/// The phase of a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// It has no process now.
    Down,
    /// Its process runs, and is not ready for requests on this port.
    Running(u16),
    /// Its process is ready for requests on this port.
    Ready(u16),
    /// Its process finishes requests in flight, on this port if it has one.
    Ending(Option<u16>),
}

/// A pod that stands for a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Replica {
    pub(super) workload: ObjectName,
    pub(super) revision: u32,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) pod: Arc<str>,
    pub(super) uid: Arc<str>,
    pub(super) template: Arc<Value>,
    pub(super) phase: Phase,
    /// The number of restarts after its process ended by itself.
    pub(super) restarts: u32,
    pub(super) times: Times,
}

/// When things happened to a replica, as the API writes times.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Times {
    pub(super) created: String,
    /// The last change of its readiness.
    pub(super) readiness: String,
    /// The start of the process that runs.
    pub(super) running: Option<String>,
    /// The end of the process before.
    pub(super) ended: Option<Ended>,
}

/// The end of a process that was not asked to end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ended {
    pub(super) code: i32,
    pub(super) started: Option<String>,
    pub(super) finished: String,
}

/// The changes for one Deployment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Plan {
    /// Replicas to start, of the desired revision.
    pub(super) start: usize,
    /// Replicas that have no room.
    pub(super) refused: usize,
    /// Pods to end.
    pub(super) end: Vec<Arc<str>>,
}

impl Desired {
    /// Reads a Deployment; `spec.replicas` is 1 by default.
    pub(super) fn of(deployment: &Deployment) -> Option<Self> {
        let metadata = &deployment.metadata;
        let name = ObjectName::new(metadata.namespace.as_deref()?, metadata.name.as_deref()?);
        let spec = deployment.spec.as_ref()?;
        let labels = spec.template.metadata.as_ref().and_then(|meta| meta.labels.clone()).unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        let template = serde_json::to_value(&spec.template).unwrap_or_default();
        template.to_string().hash(&mut hasher);
        let revision = u32::try_from(hasher.finish() >> 32).unwrap_or_default();
        let replicas = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or_default();
        let uid = metadata.uid.clone().unwrap_or_default();
        let selector = serde_json::to_value(&spec.selector).unwrap_or_default();
        let history = usize::try_from(spec.revision_history_limit.unwrap_or(10)).unwrap_or_default();
        let (template, strategy) = (Arc::new(template), Strategy::of(spec));
        let annotations = shared_annotations(metadata.annotations.clone().unwrap_or_default());
        Some(Self { name, replicas, revision, labels, annotations, uid, selector, template, history, strategy })
    }

    /// A new replica that does not run yet. Its name and its uid are derived from the bits.
    pub(super) fn replica(&self, bits: u128, now: &str) -> Replica {
        const DIGITS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
        let digit = |nth: u32| char::from(DIGITS[(bits >> (nth * 8)) as usize % DIGITS.len()]);
        let tail: String = (0..5).map(digit).collect();
        let head = set_name(&self.name.name, self.revision);
        let hex = format!("{bits:032x}");
        let part = |range: std::ops::Range<usize>| hex.get(range).unwrap_or_default();
        let uid = format!("{}-{}-4{}-8{}-{}", part(0..8), part(8..12), part(13..16), part(17..20), part(20..32));
        Replica {
            workload: self.name.clone(),
            revision: self.revision,
            labels: self.labels.clone(),
            pod: format!("{head}-{tail}").into(),
            uid: uid.into(),
            template: Arc::clone(&self.template),
            phase: Phase::Down,
            restarts: 0,
            times: Times { created: now.to_owned(), readiness: now.to_owned(), ..Times::default() },
        }
    }
}

/// The annotations of a Deployment that a ReplicaSet gets too, such as `kubernetes.io/change-cause`: all but those
/// about the Deployment itself (the rule of the Deployment controller).
fn shared_annotations(mut annotations: BTreeMap<String, String>) -> BTreeMap<String, String> {
    const OWN: [&str; 6] = [
        "kubectl.kubernetes.io/last-applied-configuration",
        "deployment.kubernetes.io/revision",
        "deployment.kubernetes.io/revision-history",
        "deployment.kubernetes.io/desired-replicas",
        "deployment.kubernetes.io/max-replicas",
        "deprecated.deployment.rollback.to",
    ];
    annotations.retain(|name, _| !OWN.contains(&name.as_str()));
    annotations
}

impl Replica {
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready(_))
    }

    pub(super) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending(_))
    }

    /// The name of the container that its process stands for: the first one.
    pub(super) fn container(&self) -> &str {
        self.template["spec"]["containers"][0]["name"].as_str().unwrap_or_default()
    }
}

/// Plans the changes to the replicas of one Deployment, of which `room` more may be started. `desired` is `None` if the
/// Deployment is gone. Replicas of an older template are replaced within the bounds of its strategy.
pub(super) fn plan(desired: Option<&Desired>, replicas: &[&Replica], room: usize) -> Plan {
    let running = || replicas.iter().copied().filter(|replica| !replica.is_ending());
    let Some(desired) = desired else {
        return Plan { start: 0, refused: 0, end: running().map(|replica| Arc::clone(&replica.pod)).collect() };
    };
    let (mut current, mut old): (Vec<_>, Vec<_>) = running().partition(|replica| replica.revision == desired.revision);
    // Ready replicas are kept longest.
    current.sort_by_key(|replica| !replica.is_ready());
    old.sort_by_key(|replica| !replica.is_ready());
    let ready = |some: &[&Replica]| some.iter().filter(|replica| replica.is_ready()).count();
    let bounds = desired.strategy.bounds(desired.replicas);
    let missing = desired.replicas.saturating_sub(current.len());
    let (start, kept) = if desired.strategy == Strategy::Recreate {
        let before = replicas.iter().any(|replica| replica.revision != desired.revision);
        (if before { 0 } else { missing }, 0)
    } else {
        // An older replica that is not ready ends at once, unless then those which are about to be ready would have to
        // replace more than may be missing (the rule of the Deployment controller).
        let spare = old.len().saturating_sub(bounds.ready.saturating_sub(ready(&current)));
        let sound = ready(&old);
        let failed = (old.len() - sound).min(spare);
        let surplus = (ready(&current) + sound).saturating_sub(bounds.ready).min(sound);
        (missing.min(bounds.most.saturating_sub(current.len() + old.len())), old.len() - failed - surplus)
    };
    let surplus = current.into_iter().skip(desired.replicas);
    let outdated = old.into_iter().skip(kept);
    let refused = start.saturating_sub(room);
    Plan {
        start: start - refused,
        refused,
        end: surplus.chain(outdated).map(|replica| Arc::clone(&replica.pod)).collect(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::super::strategy::Amount;
    use super::*;

    pub(in crate::dev) fn desired(replicas: usize, revision: u32) -> Desired {
        let labels = [("app".to_owned(), "cart".to_owned())].into();
        let template = json!({
            "metadata": {"labels": {"app": "cart"}}, "spec": {"containers": [{"name": "cart", "image": "echo"}]},
        });
        Desired {
            name: ObjectName::new("shop", "cart"),
            replicas,
            revision,
            labels,
            annotations: BTreeMap::new(),
            uid: "uid-cart".to_owned(),
            selector: json!({"matchLabels": {"app": "cart"}}),
            template: Arc::new(template),
            history: 10,
            strategy: Strategy::Rolling { surge: Amount::Percent(25), unavailable: Amount::Percent(25) },
        }
    }

    pub(in crate::dev) fn replica(pod: &str, revision: u32, phase: Phase) -> Replica {
        Replica { pod: pod.into(), uid: format!("uid-{pod}").into(), phase, ..desired(1, revision).replica(0, "") }
    }

    #[track_caller]
    fn check(want: Option<(usize, u32)>, pods: &[&str], room: usize, start: usize, end: &[&str]) {
        planned(want.map(|(replicas, revision)| desired(replicas, revision)).as_ref(), pods, room, start, end);
    }

    /// Checks the plan for two replicas of revision 2 by a strategy.
    #[track_caller]
    fn check_two(strategy: Strategy, pods: &[&str], start: usize, end: &[&str]) {
        planned(Some(&Desired { strategy, ..desired(2, 2) }), pods, 9, start, end);
    }

    /// Pods are written `a1+` (revision 1, ready), `a1-` (not ready) or `a1x` (ending).
    #[track_caller]
    fn planned(want: Option<&Desired>, pods: &[&str], room: usize, start: usize, end: &[&str]) {
        let replicas: Vec<Replica> = pods
            .iter()
            .map(|pod| {
                let phase = match &pod[2..] {
                    "+" => Phase::Ready(1),
                    "-" => Phase::Down,
                    _ => Phase::Ending(None),
                };
                replica(&pod[..2], pod[1..2].parse().unwrap(), phase)
            })
            .collect();
        let got = plan(want, &replicas.iter().collect::<Vec<_>>(), room);
        let ended: Vec<&str> = got.end.iter().map(|pod| &**pod).collect();
        assert_eq!((got.start, &*ended), (start, end), "{pods:?}");
    }

    #[test]
    fn replicas_follow_the_number() {
        check(Some((2, 1)), &[], 9, 2, &[]);
        check(Some((2, 1)), &["a1-", "b1+"], 9, 0, &[]);
        check(Some((1, 1)), &["a1-", "b1+"], 9, 0, &["a1"]);
        check(Some((0, 1)), &["a1+", "b1+"], 9, 0, &["a1", "b1"]);
        check(Some((2, 1)), &["a1x", "b1+"], 9, 1, &[]);
        check(None, &["a1+", "b1x"], 9, 0, &["a1"]);
    }

    #[test]
    fn there_is_a_limit() {
        assert_eq!(plan(Some(&desired(7, 1)), &[], 3), Plan { start: 3, refused: 4, end: Vec::new() });
        check(Some((7, 1)), &["a1+"], 3, 3, &[]);
        check(Some((7, 1)), &["a1+"], 0, 0, &[]);
    }

    #[test]
    fn a_new_template_replaces_the_old_one_without_a_gap() {
        check(Some((2, 2)), &["a1+", "b1+"], 9, 1, &[]);
        check(Some((2, 2)), &["a1+", "b1+", "c2-"], 9, 0, &[]);
        check(Some((2, 2)), &["a1+", "b1+", "c2+"], 9, 0, &["b1"]);
        check(Some((2, 2)), &["a1+", "b1x", "c2+"], 9, 1, &[]);
        check(Some((2, 2)), &["a1+", "c2+", "d2+"], 9, 0, &["a1"]);
        // Five replicas, of which one may be missing, and two more are allowed.
        check(Some((5, 2)), &["a1+", "b1+", "c1+", "d1+", "e1+"], 9, 2, &["e1"]);
    }

    #[test]
    fn an_older_replica_that_is_not_ready_goes_first() {
        check(Some((1, 2)), &["a1-", "b1+"], 9, 0, &["a1"]);
        check(Some((2, 2)), &["a1-", "b1+", "c2-"], 9, 0, &[]);
        check(Some((2, 2)), &["a1-", "b1+", "c2+"], 9, 0, &["a1"]);
    }

    #[test]
    fn a_strategy_bounds_surge_and_unavailability() {
        let rolling = |surge, unavailable| Strategy::Rolling {
            surge: Amount::Count(surge),
            unavailable: Amount::Count(unavailable),
        };
        check_two(rolling(2, 0), &["a1+", "b1+"], 2, &[]);
        check_two(rolling(0, 1), &["a1+", "b1+"], 0, &["b1"]);
        check_two(rolling(0, 1), &["a1+", "b1x"], 1, &[]);
        check_two(rolling(0, 1), &["a1+", "c2-"], 0, &[]);
        check_two(rolling(0, 2), &["a1+", "b1+"], 0, &["a1", "b1"]);
        check_two(Strategy::Recreate, &["a1+", "b1-"], 0, &["a1", "b1"]);
        check_two(Strategy::Recreate, &["a1x", "b1x"], 0, &[]);
        check_two(Strategy::Recreate, &[], 2, &[]);
        check_two(Strategy::Recreate, &["c2+", "d2-"], 0, &[]);
    }

    #[test]
    fn pods_have_names_of_their_own() {
        let desired = desired(1, 0xabc);
        let (a, b) = (desired.replica(1, ""), desired.replica(u128::MAX, ""));
        assert_eq!(&*a.pod, "cart-00000abc-cbbbb");
        assert_ne!(a.pod, b.pod);
        assert_eq!(&*b.uid, "ffffffff-ffff-4fff-8fff-ffffffffffff");
    }
}
