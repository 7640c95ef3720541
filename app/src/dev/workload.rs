//! The replicas of a Deployment: how many there should be, of which template, and what to do about it. Pure: processes
//! are started and ended elsewhere.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::Value;
use tidegate_config::object::ObjectName;

use super::objects::set_name;

/// Processes in all; a Deployment that wants more gets what is left.
pub(super) const REPLICAS_MAX: usize = 100;

/// What a Deployment asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Desired {
    pub(super) name: ObjectName,
    pub(super) replicas: usize,
    /// Which template: a changed one replaces every replica.
    pub(super) revision: u32,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) uid: String,
    /// As the Deployment has it.
    pub(super) selector: Value,
    pub(super) template: Arc<Value>,
    /// How many templates of before are remembered.
    pub(super) history: usize,
}

/// What a replica is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// It has no process now.
    Down,
    /// Its process runs, and is not ready for requests on this port.
    Running(u16),
    /// Its process is ready for requests on this port.
    Ready(u16),
    /// Its process finishes what is in flight, on this port if it has one.
    Ending(Option<u16>),
}

/// One pod that is not really one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Replica {
    pub(super) workload: ObjectName,
    pub(super) revision: u32,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) pod: Arc<str>,
    pub(super) uid: Arc<str>,
    pub(super) template: Arc<Value>,
    pub(super) phase: Phase,
    /// How often its process has ended by itself.
    pub(super) restarts: u32,
}

/// What to do for one Deployment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Plan {
    /// Replicas to start, of the desired revision.
    pub(super) start: usize,
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
        Some(Self { name, replicas, revision, labels, uid, selector, template: Arc::new(template), history })
    }

    /// A replica of it that does not run yet. The bits make its name and its uid its own.
    pub(super) fn replica(&self, bits: u128) -> Replica {
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
        }
    }
}

impl Replica {
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready(_))
    }

    pub(super) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending(_))
    }

    /// The container that its process stands for: the first one.
    pub(super) fn container(&self) -> &str {
        self.template["spec"]["containers"][0]["name"].as_str().unwrap_or_default()
    }
}

/// What to do about the replicas of one Deployment, of which `room` more may be started. `desired` is `None` when the
/// Deployment is gone. Replicas of an older template go one by one as newer ones become ready.
pub(super) fn plan(desired: Option<&Desired>, replicas: &[&Replica], room: usize) -> Plan {
    let running = || replicas.iter().copied().filter(|replica| !replica.is_ending());
    let Some(desired) = desired else {
        return Plan { start: 0, end: running().map(|replica| Arc::clone(&replica.pod)).collect() };
    };
    let (mut current, mut old): (Vec<_>, Vec<_>) = running().partition(|replica| replica.revision == desired.revision);
    // Ready ones stay longest.
    current.sort_by_key(|replica| !replica.is_ready());
    old.sort_by_key(|replica| !replica.is_ready());
    let ready = current.iter().filter(|replica| replica.is_ready()).count();
    let start = desired.replicas.saturating_sub(current.len()).min(room);
    let surplus = current.into_iter().skip(desired.replicas);
    let outdated = old.into_iter().skip(desired.replicas.saturating_sub(ready));
    Plan { start, end: surplus.chain(outdated).map(|replica| Arc::clone(&replica.pod)).collect() }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

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
            uid: "uid-cart".to_owned(),
            selector: json!({"matchLabels": {"app": "cart"}}),
            template: Arc::new(template),
            history: 10,
        }
    }

    pub(in crate::dev) fn replica(pod: &str, revision: u32, phase: Phase) -> Replica {
        Replica { pod: pod.into(), uid: format!("uid-{pod}").into(), phase, ..desired(1, revision).replica(0) }
    }

    /// Pods are written `a1+` (revision 1, ready), `a1-` (not ready) or `a1x` (ending).
    #[track_caller]
    fn check(want: Option<(usize, u32)>, pods: &[&str], room: usize, start: usize, end: &[&str]) {
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
        let want = want.map(|(replicas, revision)| desired(replicas, revision));
        let got = plan(want.as_ref(), &replicas.iter().collect::<Vec<_>>(), room);
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
        check(Some((7, 1)), &["a1+"], 3, 3, &[]);
        check(Some((7, 1)), &["a1+"], 0, 0, &[]);
    }

    #[test]
    fn a_new_template_replaces_the_old_one_without_a_gap() {
        check(Some((2, 2)), &["a1+", "b1+"], 9, 2, &[]);
        check(Some((2, 2)), &["a1+", "b1+", "c2-", "d2-"], 9, 0, &[]);
        check(Some((2, 2)), &["a1+", "b1+", "c2+", "d2-"], 9, 0, &["b1"]);
        check(Some((2, 2)), &["a1+", "c2+", "d2+"], 9, 0, &["a1"]);
    }

    #[test]
    fn pods_have_names_of_their_own() {
        let desired = desired(1, 0xabc);
        let (a, b) = (desired.replica(1), desired.replica(u128::MAX));
        assert_eq!(&*a.pod, "cart-00000abc-cbbbb");
        assert_ne!(a.pod, b.pod);
        assert_eq!(&*b.uid, "ffffffff-ffff-4fff-8fff-ffffffffffff");
    }
}
