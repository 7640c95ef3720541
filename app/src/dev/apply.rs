//! Applies objects of any kind from manifests, through the API like any other client.

use std::collections::BTreeMap;

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::core::TypeMeta;
use kube::discovery::{self, Scope};
use serde_json::Value;

use super::NAMESPACE;
use super::documents::Identity;
use super::folder::patch;

/// A client that caches discovery of the server's kinds.
pub(super) struct Applier {
    client: kube::Client,
    kinds: BTreeMap<(String, String), (ApiResource, Scope)>,
}

impl Applier {
    pub(super) fn new(client: kube::Client) -> Self {
        Self { client, kinds: BTreeMap::new() }
    }

    /// Creates an object, or patches the existing one to the state of the manifest. `before` is the manifest's previous
    /// state.
    ///
    /// # Errors
    /// The server's message, if it refuses the object.
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
            // Another client has deleted it meanwhile; the file still asks for it.
            Err(kube::Error::Api(status)) if status.is_not_found() => self.create(&api, object).await.map(|_| ()),
            Err(error) => Err(sentence(&error)),
        }
    }

    /// Creates an object; an existing one stays as it is.
    ///
    /// # Errors
    /// The server's message, if it refuses the object.
    pub(super) async fn make(&mut self, identity: &Identity, object: &Value) -> Result<(), String> {
        let api = self.api(identity).await?;
        self.create(&api, object).await.map(|_| ())
    }

    /// Deletes an object; a missing object is not an error.
    ///
    /// # Errors
    /// The server's message, if it refuses the deletion.
    pub(super) async fn delete(&mut self, identity: &Identity) -> Result<(), String> {
        let api = self.api(identity).await?;
        match api.delete(&identity.name, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(sentence(&error)),
        }
    }

    /// Returns `true` if the object was created, and `false` if it exists already.
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
            let unknown = || format!("the server has no kind {} in {}", identity.kind, identity.api_version);
            let (resource, capabilities) = found.map_err(|_| unknown())?;
            self.kinds.insert(key.clone(), (resource, capabilities.scope));
        }
        let (resource, scope) = self.kinds.get(&key).ok_or("the kind is unknown")?;
        let namespace = if identity.namespace.is_empty() { NAMESPACE } else { &identity.namespace };
        Ok(match scope {
            Scope::Cluster => Api::all_with(self.client.clone(), resource),
            Scope::Namespaced => Api::namespaced_with(self.client.clone(), namespace, resource),
        })
    }
}

/// The server's message, if the error is one of its answers.
pub(super) fn sentence(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error { status.message.clone() } else { error.to_string() }
}
