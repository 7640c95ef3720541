//! The ReplicaSets of Deployments: one for each recent template of a Deployment, so that `kubectl rollout` can show and
//! undo revisions.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tidegate_config::object::ObjectName;

use super::events::{About, Kind, Recorder};
use super::fleet::is_written;
use super::keeper::{Keeper, OwnedKind};
use super::objects::{self, REVISION, Template, turn};
use super::workload::{Desired, Replica};

/// The templates of Deployments.
#[derive(Default)]
pub(super) struct Sets {
    /// Those of each Deployment, the current one last.
    templates: BTreeMap<ObjectName, Vec<Template>>,
    /// Deployments that went without their ReplicaSets (`--cascade=orphan`), with the number of replicas of the last
    /// one.
    orphans: BTreeMap<ObjectName, usize>,
    /// Those of them about whose ReplicaSets the server has not answered yet: they stay until it does.
    unanswered: BTreeSet<ObjectName>,
}

/// A Deployment, the revision in its annotation, its replicas, and the number of those that have no room.
pub(super) type Deployed = (Desired, Option<String>, Vec<Replica>, usize);

impl Sets {
    /// The desired state of a Deployment: none while it is being deleted, and the previous template while it is paused.
    pub(super) fn desired(&self, deployment: &Deployment) -> Option<Desired> {
        if deployment.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let desired = Desired::of(deployment)?;
        let paused = deployment.spec.as_ref().is_some_and(|spec| spec.paused == Some(true));
        let before = || self.templates.get(&desired.name)?.last().filter(|last| last.desired.uid == desired.uid);
        let before = if paused { before() } else { None };
        Some(match before {
            Some(last) => Desired { replicas: desired.replicas, ..last.desired.clone() },
            None => desired,
        })
    }

    /// The state to keep for ReplicaSets without a Deployment.
    pub(super) fn orphans(&self) -> impl Iterator<Item = Desired> {
        self.orphans.iter().filter_map(|(name, replicas)| {
            let last = self.templates.get(name)?.last()?;
            Some(Desired { replicas: *replicas, ..last.desired.clone() })
        })
    }

    /// Looks up the ReplicaSets of Deployments that are gone. Those that exist without an owner stay. Returns `false`
    /// if the server has not answered every question.
    pub(super) async fn release(
        &mut self,
        keeper: &mut Keeper,
        client: &kube::Client,
        deployments: &BTreeMap<ObjectName, Deployment>,
    ) -> bool {
        let gone: Vec<ObjectName> = self
            .templates
            .iter()
            .filter(|(name, templates)| {
                let uid = deployments.get(name).and_then(|deployment| deployment.metadata.uid.as_ref());
                let is_settled = self.orphans.contains_key(name) && !self.unanswered.contains(name);
                !is_settled && templates.last().is_some_and(|last| Some(&last.desired.uid) != uid)
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), &name.namespace);
            let (mut left, mut replicas) = (Vec::new(), 0);
            self.orphans.remove(&name);
            self.unanswered.remove(&name);
            for template in self.templates.remove(&name).unwrap_or_default() {
                let set = objects::set_name(&name.name, template.hash);
                match sets.get_opt(&set).await {
                    Ok(Some(found)) if found.owner_references().is_empty() => {
                        replicas = wanted(&found);
                        left.push(template);
                    }
                    Ok(_) => keeper.forget(OwnedKind::ReplicaSet, &ObjectName::new(&*name.namespace, set)),
                    Err(_) => {
                        replicas = template.count;
                        left.push(template);
                        self.unanswered.insert(name.clone());
                    }
                }
            }
            if !left.is_empty() {
                self.orphans.insert(name.clone(), replicas);
                self.templates.insert(name, left);
            }
        }
        self.unanswered.is_empty()
    }

    /// Takes note of a ReplicaSet without a Deployment: somebody has scaled it, or it is gone.
    pub(super) fn see_orphan(&mut self, set: &ReplicaSet, gone: bool) {
        let of_set = |name: &ObjectName, template: &Template| {
            set.namespace().as_deref() == Some(&*name.namespace)
                && set.name_any() == objects::set_name(&name.name, template.hash)
        };
        for (name, replicas) in &mut self.orphans {
            let Some(templates) = self.templates.get_mut(name) else { continue };
            if gone {
                templates.retain(|template| !of_set(name, template));
            } else if templates.last().is_some_and(|last| of_set(name, last)) {
                *replicas = wanted(set);
            }
        }
        self.orphans.retain(|name, _| self.templates.get(name).is_some_and(|templates| !templates.is_empty()));
    }

    /// Writes the ReplicaSets, and the current revision into its Deployment. Returns `true` if every write succeeded.
    /// `orphans` are the replicas without a Deployment.
    pub(super) async fn write(
        &mut self,
        keeper: &mut Keeper,
        client: &kube::Client,
        all: Vec<Deployed>,
        orphans: &[&Replica],
        recorder: &Recorder,
    ) -> bool {
        self.templates
            .retain(|name, _| self.orphans.contains_key(name) || all.iter().any(|(desired, ..)| desired.name == *name));
        let (mut known, mut settled) = (BTreeSet::new(), true);
        for (desired, told_number, replicas, refused) in all {
            let templates = self.templates.entry(desired.name.clone()).or_default();
            self.unanswered.remove(&desired.name);
            if self.orphans.remove(&desired.name).is_some() {
                adopt(templates, &desired, keeper);
            }
            // Another Deployment of the same name has a history of its own.
            templates.retain(|template| template.desired.uid == desired.uid);
            let running = |hash: u32| replicas.iter().filter(|one| one.revision == hash && !one.is_ending()).count();
            let number = turn(templates, &desired, |hash| running(hash) > 0).to_string();
            for template in templates.iter_mut() {
                let current = template.hash == desired.revision;
                let count = if current { desired.replicas } else { running(template.hash) };
                if count > 0 {
                    // An older ReplicaSet keeps the annotations of its last scaling.
                    template.desired.replicas = desired.replicas;
                    template.desired.strategy = desired.strategy;
                }
                let refused = if current { refused } else { 0 };
                let (object, status) =
                    objects::replica_set(template, count, &replicas.iter().collect::<Vec<_>>(), refused);
                let name = objects::set_name(&desired.name.name, template.hash);
                tell_scaling(recorder, template, &name, count);
                let name = ObjectName::new(&*desired.name.namespace, name);
                settled &= is_written(keeper.put(OwnedKind::ReplicaSet, &name, object, status).await, true, &name);
                known.insert(name);
            }
            if told_number.as_ref() != Some(&number) {
                let patch = Patch::Merge(json!({"metadata": {"annotations": {REVISION: number}}}));
                let deployments: Api<Deployment> = Api::namespaced(client.clone(), &desired.name.namespace);
                let patched = deployments.patch(&desired.name.name, &PatchParams::default(), &patch).await;
                settled &= is_written(patched.map(|_| ()), true, &desired.name);
            }
        }
        settled &= self.write_orphans(keeper, orphans, &mut known).await;
        keeper.retain(OwnedKind::ReplicaSet, &known).await && settled
    }

    /// Writes the status of the ReplicaSets without a Deployment, and adds their names to the known ones.
    async fn write_orphans(
        &self,
        keeper: &mut Keeper,
        replicas: &[&Replica],
        known: &mut BTreeSet<ObjectName>,
    ) -> bool {
        let mut settled = true;
        for name in self.orphans.keys() {
            let own: Vec<&Replica> = replicas.iter().copied().filter(|replica| replica.workload == *name).collect();
            for template in self.templates.get(name).into_iter().flatten() {
                let (_, status) = objects::replica_set(template, 0, &own, 0);
                let set = ObjectName::new(&*name.namespace, objects::set_name(&name.name, template.hash));
                settled &= is_written(keeper.put_status(OwnedKind::ReplicaSet, &set, status).await, true, &set);
                known.insert(set);
            }
        }
        settled
    }
}

/// Tells of a ReplicaSet that asks for another number of replicas.
fn tell_scaling(recorder: &Recorder, template: &mut Template, set: &str, count: usize) {
    if count != template.count {
        let Desired { name, uid, .. } = &template.desired;
        let about = About { kind: Kind::Deployment, name: name.clone(), uid: uid.clone() };
        let way = if count > template.count { "up" } else { "down" };
        let message = format!("Scaled {way} replica set {set} from {} to {count}", template.count);
        recorder.note(about, "ScalingReplicaSet", message);
        template.count = count;
    }
}

/// Gives the ReplicaSets that a Deployment selects to it. The others stay without one, and nothing runs for them any
/// more.
fn adopt(templates: &mut [Template], desired: &Desired, keeper: &mut Keeper) {
    for template in templates {
        if template.desired.selector == desired.selector {
            template.desired.uid.clone_from(&desired.uid);
        } else {
            let set = objects::set_name(&desired.name.name, template.hash);
            keeper.forget(OwnedKind::ReplicaSet, &ObjectName::new(&*desired.name.namespace, set));
        }
    }
}

/// The number of replicas that a ReplicaSet asks for.
fn wanted(set: &ReplicaSet) -> usize {
    let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    usize::try_from(replicas).unwrap_or_default()
}
