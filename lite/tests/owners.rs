//! Dependents of a deleted object: the policies of a deletion, as in the real server's garbage collector.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tidegate_lite::Lite;

struct Owners {
    _lite: Lite,
    maps: Api<ConfigMap>,
}

impl Owners {
    fn new() -> Self {
        let lite = Lite::new();
        let maps = Api::default_namespaced(Client::new(lite.service(), "default"));
        Self { _lite: lite, maps }
    }

    /// Creates an object with these owners, and returns its uid.
    async fn make(&self, name: &str, owners: &[(&str, &str, bool)], finalizers: &[&str]) -> String {
        let references: Vec<Value> = owners
            .iter()
            .map(|(name, uid, blocks)| {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": blocks})
            })
            .collect();
        let object = json!({"metadata": {"name": name, "ownerReferences": references, "finalizers": finalizers}});
        let object: ConfigMap = serde_json::from_value(object).unwrap();
        self.maps.create(&PostParams::default(), &object).await.unwrap().uid().unwrap()
    }

    async fn release(&self, name: &str) {
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        self.maps.patch(name, &PatchParams::default(), &free).await.unwrap();
    }

    /// The names of objects, with a `-` for those being deleted, and the number of their owners.
    async fn there(&self) -> Vec<String> {
        let list = self.maps.list(&ListParams::default()).await.unwrap();
        let shown = |one: &ConfigMap| {
            let going = if one.metadata.deletion_timestamp.is_some() { "-" } else { "" };
            format!("{}{going} {}", one.name_any(), one.owner_references().len())
        };
        list.items.iter().map(shown).collect()
    }
}

#[tokio::test]
async fn dependents_are_deleted_after_their_owner() {
    let owners = Owners::new();
    let a = owners.make("a", &[], &[]).await;
    let b = owners.make("b", &[("a", &a, false)], &[]).await;
    owners.make("c", &[("b", &b, false)], &[]).await;
    let other = owners.make("other", &[], &[]).await;
    owners.make("shared", &[("a", &a, false), ("other", &other, false)], &[]).await;
    owners.make("held", &[("b", &b, false)], &["test/held"]).await;
    owners.maps.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(owners.there().await, ["held- 1", "other 0", "shared 1"]);
    owners.release("held").await;
    assert_eq!(owners.there().await, ["other 0", "shared 1"]);
}

#[tokio::test]
async fn foreground_deletion_waits_for_blocking_dependents() {
    let owners = Owners::new();
    let a = owners.make("a", &[], &[]).await;
    let b = owners.make("b", &[("a", &a, true)], &[]).await;
    owners.make("c", &[("b", &b, true)], &["test/held"]).await;
    let deleted = owners.maps.delete("a", &DeleteParams::foreground()).await.unwrap();
    let going = deleted.left().expect("it is still there");
    assert_eq!(going.finalizers(), ["foregroundDeletion"]);
    assert_eq!(owners.there().await, ["a- 0", "b- 1", "c- 1"]);
    owners.release("c").await;
    assert_eq!(owners.there().await, [""; 0]);
}

#[tokio::test]
async fn nonblocking_dependents_are_deleted_after_their_owner() {
    let owners = Owners::new();
    let a = owners.make("a", &[], &[]).await;
    owners.make("b", &[("a", &a, false)], &["test/held"]).await;
    owners.maps.delete("a", &DeleteParams::foreground()).await.unwrap();
    assert_eq!(owners.there().await, ["b- 1"]);
}

#[tokio::test]
async fn orphaned_dependents_stay() {
    let owners = Owners::new();
    let a = owners.make("a", &[], &[]).await;
    owners.make("b", &[("a", &a, true)], &[]).await;
    let orphan =
        DeleteParams { propagation_policy: Some(kube::api::PropagationPolicy::Orphan), ..DeleteParams::default() };
    owners.maps.delete("a", &orphan).await.unwrap();
    assert_eq!(owners.there().await, ["b 0"]);
}

#[tokio::test]
async fn dependents_of_absent_owners_are_deleted() {
    let owners = Owners::new();
    owners.make("lost", &[("absent", "0-0-0", true)], &[]).await;
    owners.make("self", &[("absent", "0-0-0", true)], &["test/held"]).await;
    let a = owners.make("a", &[], &[]).await;
    owners.make("renewed", &[("a", &a, true)], &[]).await;
    assert_eq!(owners.there().await, ["a 0", "renewed 1", "self 1"]);
    let deleted = owners.maps.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    assert_eq!(deleted.left().map(|list| list.items.len()), Some(3));
    assert_eq!(owners.there().await, ["self- 1"]);
}
