//! The ReplicaSets of Deployments: one for each recent template of a Deployment, so that `kubectl rollout` can show and
//! undo revisions.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tidegate_config::object::ObjectName;

use super::fleet::told;
use super::keeper::{Keeper, Kept};
use super::objects::{self, REVISION, Template, turn};
use super::workload::{Desired, Replica};

/// The templates of each Deployment, the current one last.
#[derive(Default)]
pub(super) struct Sets(BTreeMap<ObjectName, Vec<Template>>);

/// A Deployment, the revision in its annotation, and its replicas.
pub(super) type Deployed = (Desired, Option<String>, Vec<Replica>);

impl Sets {
    /// The desired state of a Deployment: none while it is being deleted, and the previous template while it is paused.
    pub(super) fn desired(&self, deployment: &Deployment) -> Option<Desired> {
        if deployment.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let desired = Desired::of(deployment)?;
        let paused = deployment.spec.as_ref().is_some_and(|spec| spec.paused == Some(true));
        let before = || self.0.get(&desired.name)?.last().filter(|last| last.desired.uid == desired.uid);
        let before = if paused { before() } else { None };
        Some(match before {
            Some(last) => Desired { replicas: desired.replicas, ..last.desired.clone() },
            None => desired,
        })
    }

    /// Writes the ReplicaSets, and the current revision into its Deployment. Returns `true` if every write succeeded.
    pub(super) async fn write(&mut self, keeper: &mut Keeper, client: &kube::Client, all: Vec<Deployed>) -> bool {
        self.0.retain(|name, _| all.iter().any(|(desired, ..)| desired.name == *name));
        let (mut wanted, mut settled) = (BTreeSet::new(), true);
        for (desired, told_number, replicas) in all {
            let templates = self.0.entry(desired.name.clone()).or_default();
            // Another Deployment of the same name has a history of its own.
            templates.retain(|template| template.desired.uid == desired.uid);
            let running = |hash: u32| replicas.iter().filter(|one| one.revision == hash && !one.is_ending()).count();
            let number = turn(templates, &desired, |hash| running(hash) > 0).to_string();
            for template in templates.iter() {
                let current = template.hash == desired.revision;
                let count = if current { desired.replicas } else { running(template.hash) };
                let (object, status) = objects::replica_set(template, count, &replicas.iter().collect::<Vec<_>>());
                let name = objects::set_name(&desired.name.name, template.hash);
                let name = ObjectName::new(&*desired.name.namespace, name);
                settled &= told(keeper.put(Kept::ReplicaSet, &name, object, status).await, true, &name);
                wanted.insert(name);
            }
            if told_number.as_ref() != Some(&number) {
                let patch = Patch::Merge(json!({"metadata": {"annotations": {REVISION: number}}}));
                let deployments: Api<Deployment> = Api::namespaced(client.clone(), &desired.name.namespace);
                let patched = deployments.patch(&desired.name.name, &PatchParams::default(), &patch).await;
                settled &= told(patched.map(|_| ()), true, &desired.name);
            }
        }
        keeper.retain(Kept::ReplicaSet, &wanted).await && settled
    }
}
