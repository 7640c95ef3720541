//! Brings objects of any kind to what a manifest says, through the API like any other client.

use std::collections::BTreeMap;

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::core::TypeMeta;
use kube::discovery::{self, Scope};
use serde_json::Value;

use super::NAMESPACE;
use super::documents::Identity;
use super::folder::patch;

/// A client with the kinds it has asked the server about.
pub(super) struct Applier {
    client: kube::Client,
    kinds: BTreeMap<(String, String), (ApiResource, Scope)>,
}

impl Applier {
    pub(super) fn new(client: kube::Client) -> Self {
        Self { client, kinds: BTreeMap::new() }
    }

    /// Makes an object, or brings the one that is there to what the manifest says. `before` is what it said the last time.
    ///
    /// # Errors
    /// Says in the server's words why the object is not taken.
    pub(super) async fn put(
        &mut self,
        identity: &Identity,
        object: &Value,
        before: Option<&Value>,
    ) -> Result<(), String> {
        let api = self.api(identity).await?;
        if before.is_none() && self.create(&api, object).await? {
            return Ok(());
        }
        let patch = Patch::Merge(patch(before, object));
        match api.patch(&identity.name, &PatchParams::default(), &patch).await {
            Ok(_) => Ok(()),
            // Somebody has deleted it meanwhile; the file still asks for it.
            Err(kube::Error::Api(status)) if status.is_not_found() => self.create(&api, object).await.map(|_| ()),
            Err(error) => Err(sentence(&error)),
        }
    }

    /// Makes an object; one that is there already stays as it is.
    ///
    /// # Errors
    /// Says in the server's words why the object is not taken.
    pub(super) async fn make(&mut self, identity: &Identity, object: &Value) -> Result<(), String> {
        let api = self.api(identity).await?;
        self.create(&api, object).await.map(|_| ())
    }

    /// Deletes an object; that it is gone already is no error.
    ///
    /// # Errors
    /// Says in the server's words why it stays.
    pub(super) async fn delete(&mut self, identity: &Identity) -> Result<(), String> {
        let api = self.api(identity).await?;
        match api.delete(&identity.name, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(sentence(&error)),
        }
    }

    /// Whether the object is made; not when it is there already.
    async fn create(&self, api: &Api<DynamicObject>, object: &Value) -> Result<bool, String> {
        let object: DynamicObject = serde_json::from_value(object.clone()).map_err(|why| why.to_string())?;
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
            Err(error) => Err(sentence(&error)),
        }
    }

    async fn api(&mut self, identity: &Identity) -> Result<Api<DynamicObject>, String> {
        let key = (identity.api_version.clone(), identity.kind.clone());
        if !self.kinds.contains_key(&key) {
            let types = TypeMeta { api_version: key.0.clone(), kind: key.1.clone() };
            let gvk = GroupVersionKind::try_from(&types).map_err(|why| why.to_string())?;
            let found = discovery::pinned_kind(&self.client, &gvk).await;
            let unknown = || format!("the server knows no kind {} in {}", identity.kind, identity.api_version);
            let (resource, capabilities) = found.map_err(|_| unknown())?;
            self.kinds.insert(key.clone(), (resource, capabilities.scope));
        }
        let (resource, scope) = self.kinds.get(&key).ok_or("the kind is not known")?;
        let namespace = if identity.namespace.is_empty() { NAMESPACE } else { &identity.namespace };
        Ok(match scope {
            Scope::Cluster => Api::all_with(self.client.clone(), resource),
            Scope::Namespaced => Api::namespaced_with(self.client.clone(), namespace, resource),
        })
    }
}

/// The server's own words, where the error is one of its answers.
pub(super) fn sentence(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error { status.message.clone() } else { error.to_string() }
}
