//! The writes of the fleet: ReplicaSets, Pods, EndpointSlices and the status of Deployments, where they differ from the
//! server's state.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tidegate_config::object::ObjectName;

use super::Fleet;
use crate::clock;
use crate::dev::events::{About, Kind};
use crate::dev::keeper::OwnedKind;
use crate::dev::objects::{self, REVISION};
use crate::dev::slice;
use crate::dev::status::status;
use crate::dev::workload::Replica;

impl Fleet {
    /// Writes the differences. Returns `true` if every write succeeded.
    pub(super) async fn write(&mut self) -> bool {
        let mut settled = self.write_sets().await & self.write_pods().await;
        let replicas: Vec<&Replica> = self.replicas.values().map(|(replica, _)| replica).collect();
        let wanted = slice::slices(self.services.values(), &replicas);
        for (name, slice) in &wanted {
            if self.written.get(name) != Some(slice) {
                settled &= self.put_slice(name, slice).await;
            }
        }
        let gone: Vec<ObjectName> = self.written.keys().filter(|name| !wanted.contains_key(name)).cloned().collect();
        for name in gone {
            let deleted = self.api::<EndpointSlice>(&name).delete(&name.name, &DeleteParams::default()).await;
            let done = is_written(deleted.map(|_| ()), true, &name);
            settled &= done;
            if done {
                self.written.remove(&name);
            }
        }
        for deployment in self.deployments.values() {
            settled &= self.put_status(deployment).await;
        }
        settled
    }

    async fn write_sets(&mut self) -> bool {
        let mut deployments = Vec::new();
        for deployment in self.deployments.values() {
            if let Some(desired) = self.sets.desired(deployment) {
                let replicas = self.of(&desired.name).into_iter().cloned().collect();
                let refused = self.refused.get(&desired.name).copied().unwrap_or_default();
                deployments.push((desired, deployment.annotations().get(REVISION).cloned(), replicas, refused));
            }
        }
        let without = |replica: &&Replica| !self.deployments.contains_key(&replica.workload);
        let orphans: Vec<&Replica> = self.replicas.values().map(|(replica, _)| replica).filter(without).collect();
        self.sets.write(&mut self.keeper, &self.client, deployments, &orphans, &self.recorder).await
    }

    /// Writes a Pod for every process until it has ended. Returns `true` if every write succeeded.
    async fn write_pods(&mut self) -> bool {
        let mut replicas: Vec<&mut Replica> = self.replicas.values_mut().map(|(replica, _)| replica).collect();
        let name = |replica: &Replica| ObjectName::new(&*replica.workload.namespace, &*replica.pod);
        let wanted: BTreeSet<ObjectName> = replicas.iter().map(|replica| name(replica)).collect();
        // Pods whose processes have ended go first: with the strategy Recreate, no old Pod is there beside a new one.
        let mut settled = self.keeper.retain(OwnedKind::Pod, &wanted).await;
        // A new Pod is shown as ready before the one that it replaces is shown as ending.
        replicas.sort_by_key(|replica| replica.is_ending());
        for replica in replicas {
            let name = name(replica);
            let set = objects::set_name(&replica.workload.name, replica.revision);
            let set_name = ObjectName::new(&*replica.workload.namespace, set);
            let set = self.keeper.uid(OwnedKind::ReplicaSet, &set_name);
            // A replica that ends has its Pod already, or never gets one.
            let known = self.keeper.uid(OwnedKind::Pod, &name).is_some();
            if let Some(set) = set.map(str::to_owned).filter(|_| known || !replica.is_ending()) {
                let (object, status) = objects::pod(replica, &set);
                settled &= is_written(self.keeper.put(OwnedKind::Pod, &name, object, status).await, false, &name);
                if replica.is_ending() {
                    settled &= is_written(self.keeper.end(OwnedKind::Pod, &name).await, true, &name);
                }
                let uid = self.keeper.uid(OwnedKind::Pod, &name);
                replica.uid = uid.map_or_else(|| replica.uid.clone(), Into::into);
                if !known && uid.is_some() {
                    let created = format!("Created pod: {}", name.name);
                    let set = About { kind: Kind::ReplicaSet, name: set_name, uid: set };
                    self.recorder.note(set, "SuccessfulCreate", created);
                    let about = About { kind: Kind::Pod, name: name.clone(), uid: replica.uid.to_string() };
                    let placed = format!("Successfully assigned {}/{} to dev", name.namespace, name.name);
                    self.recorder.note(about, "Scheduled", placed);
                }
            }
        }
        settled
    }

    async fn put_slice(&mut self, name: &ObjectName, slice: &EndpointSlice) -> bool {
        let slices = self.api::<EndpointSlice>(name);
        let created = match slices.create(&PostParams::default(), slice).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                slices.patch(&name.name, &PatchParams::default(), &Patch::Merge(slice)).await
            }
            created => created,
        };
        let done = is_written(created.map(|_| ()), false, name);
        if done {
            self.written.insert(name.clone(), slice.clone());
        }
        done
    }

    async fn put_status(&self, deployment: &Deployment) -> bool {
        let Some(desired) = self.sets.desired(deployment) else { return true };
        let Some(status) = status(
            deployment,
            &desired,
            &self.of(&desired.name),
            self.refused.get(&desired.name).copied().unwrap_or_default(),
            clock::wall(),
        ) else {
            return true;
        };
        let deployments = self.api::<Deployment>(&desired.name);
        // Absent fields are removed: a number that has become 0 is absent.
        let cleared = json!({
            "observedGeneration": null, "replicas": null, "updatedReplicas": null, "readyReplicas": null,
            "availableReplicas": null, "unavailableReplicas": null,
        });
        let patch = json!({ "status": crate::dev::folder::patch(Some(&cleared), &json!(status)) });
        let patched = deployments.patch_status(&desired.name.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        is_written(patched.map(|_| ()), true, &desired.name)
    }
}

/// Returns `true` if a write succeeded, or has become pointless because the object is gone.
pub(in crate::dev) fn is_written(written: kube::Result<()>, gone_is_fine: bool, name: &ObjectName) -> bool {
    match written {
        Ok(()) => true,
        Err(kube::Error::Api(status)) if gone_is_fine && status.is_not_found() => true,
        Err(error) => {
            tracing::debug!(%name, %error, "a write was refused; it is retried");
            false
        }
    }
}
