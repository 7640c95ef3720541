//! Writes the ReplicaSets and Pods of the fleet, and remembers their state on the server, so that only changes are
//! written.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidegate_config::object::ObjectName;

use super::NAMESPACE;
use super::fleet::is_written;
use super::objects::FINALIZER;

/// The kinds that are written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum OwnedKind {
    ReplicaSet,
    Pod,
}

/// An object as last written here; empty for an object of an earlier run.
#[derive(Default)]
struct Written {
    object: Value,
    status: Value,
    uid: String,
    /// `true` if its deletion has been requested.
    ends: bool,
}

/// The only writer of these objects.
pub(super) struct Keeper {
    client: kube::Client,
    written: BTreeMap<(OwnedKind, ObjectName), Written>,
}

impl Keeper {
    pub(super) fn new(client: kube::Client) -> Self {
        Self { client, written: BTreeMap::new() }
    }

    /// Takes over the objects of an earlier run: those that are no longer wanted are removed.
    pub(super) async fn adopt(&mut self) -> kube::Result<()> {
        for kept in [OwnedKind::ReplicaSet, OwnedKind::Pod] {
            let all = Api::<DynamicObject>::all_with(self.client.clone(), &resource(kept));
            for object in all.list(&ListParams::default()).await?.items {
                let ours = match kept {
                    OwnedKind::Pod => object.finalizers().iter().any(|one| one == FINALIZER),
                    OwnedKind::ReplicaSet => object.owner_references().iter().any(|owner| owner.kind == "Deployment"),
                };
                if ours {
                    let name = ObjectName::new(object.namespace().unwrap_or_default(), object.name_any());
                    self.written.entry((kept, name)).or_default();
                }
            }
        }
        Ok(())
    }

    /// Brings an object and its status to the desired state.
    pub(super) async fn put(
        &mut self,
        kept: OwnedKind,
        name: &ObjectName,
        object: Value,
        status: Value,
    ) -> kube::Result<()> {
        let api = self.api(kept, name);
        let written = self.written.entry((kept, name.clone())).or_default();
        if written.object != object {
            let answer = api.patch(&name.name, &manager(), &Patch::Apply(&object)).await?;
            let uid = answer.uid().unwrap_or_default();
            *written = Written { object, status: Value::Null, uid, ends: written.ends };
        }
        self.put_status(kept, name, status).await
    }

    /// Brings the status of an object that was written before to the desired state.
    pub(super) async fn put_status(&mut self, kept: OwnedKind, name: &ObjectName, status: Value) -> kube::Result<()> {
        let api = self.api(kept, name);
        let Some(written) = self.written.get_mut(&(kept, name.clone())) else { return Ok(()) };
        if written.status != status {
            let part = json!({
                "apiVersion": written.object["apiVersion"], "kind": written.object["kind"],
                "metadata": {"name": &*name.name}, "status": status,
            });
            api.patch_status(&name.name, &manager(), &Patch::Apply(&part)).await?;
            written.status = status;
        }
        Ok(())
    }

    /// Requests the deletion of an object; it stays, with a deletion timestamp, as long as it has a finalizer.
    pub(super) async fn end(&mut self, kept: OwnedKind, name: &ObjectName) -> kube::Result<()> {
        let api = self.api(kept, name);
        if let Some(written) = self.written.get_mut(&(kept, name.clone())).filter(|written| !written.ends) {
            api.delete(&name.name, &DeleteParams::default()).await?;
            written.ends = true;
        }
        Ok(())
    }

    /// The uid assigned by the server.
    pub(super) fn uid(&self, kept: OwnedKind, name: &ObjectName) -> Option<&str> {
        let written = self.written.get(&(kept, name.clone()))?;
        Some(written.uid.as_str()).filter(|uid| !uid.is_empty())
    }

    /// Forgets an object that another client has removed: if it is still wanted, it is created again.
    pub(super) fn forget(&mut self, kept: OwnedKind, name: &ObjectName) {
        self.written.remove(&(kept, name.clone()));
    }

    /// Removes every object of a kind that is not in `wanted`. Returns `true` if all of them are gone.
    pub(super) async fn retain(&mut self, kept: OwnedKind, wanted: &BTreeSet<ObjectName>) -> bool {
        let unwanted = |(kind, name): &&(OwnedKind, ObjectName)| *kind == kept && !wanted.contains(name);
        let unwanted: Vec<ObjectName> = self.written.keys().filter(unwanted).map(|(_, name)| name.clone()).collect();
        let mut all = true;
        for name in unwanted {
            let gone = is_written(self.remove(kept, &name).await, true, &name);
            if gone {
                self.forget(kept, &name);
            }
            all &= gone;
        }
        all
    }

    async fn remove(&self, kept: OwnedKind, name: &ObjectName) -> kube::Result<()> {
        let api = self.api(kept, name);
        api.delete(&name.name, &DeleteParams::default()).await?;
        if kept == OwnedKind::Pod {
            let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            api.patch(&name.name, &PatchParams::default(), &free).await?;
        }
        Ok(())
    }

    fn api(&self, kept: OwnedKind, name: &ObjectName) -> Api<DynamicObject> {
        let namespace = if name.namespace.is_empty() { NAMESPACE } else { &name.namespace };
        Api::namespaced_with(self.client.clone(), namespace, &resource(kept))
    }
}

/// The parameters of an apply: these fields belong to nobody else.
fn manager() -> PatchParams {
    PatchParams::apply("tidegate-dev").force()
}

fn resource(kept: OwnedKind) -> ApiResource {
    match kept {
        OwnedKind::ReplicaSet => ApiResource::erase::<ReplicaSet>(&()),
        OwnedKind::Pod => ApiResource::erase::<Pod>(&()),
    }
}
