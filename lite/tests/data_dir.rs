//! A server whose objects survive its restart.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::path::Path;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent,
};
use kube::api::{GroupVersionKind, WatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tidegate_lite::{DataDirError, Lite};

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// Opens a folder once the tasks of its last client have ended.
async fn opened(folder: &Path) -> Lite {
    for _ in 0..500 {
        match Lite::open(folder) {
            Err(DataDirError::Locked) => tokio::time::sleep(Duration::from_millis(10)).await,
            opened => return opened.unwrap(),
        }
    }
    panic!("the folder stays in use");
}

async fn open(folder: &Path) -> (Lite, Client) {
    let lite = opened(folder).await;
    let client = Client::new(lite.service(), "default");
    (lite, client)
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    object(json!({"metadata": {"name": name}, "data": {"a": value}}))
}

fn version(object: &impl kube::Resource) -> u64 {
    object.resource_version().unwrap().parse().unwrap()
}

#[tokio::test]
async fn objects_are_restored_with_their_versions() {
    let folder = tempfile::tempdir().unwrap();
    let (lite, client) = open(folder.path()).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let kept = maps.create(&PostParams::default(), &config_map("kept", "1")).await.unwrap();
    maps.create(&PostParams::default(), &config_map("gone", "1")).await.unwrap();
    maps.delete("gone", &DeleteParams::default()).await.unwrap();
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let secret: Secret = object(json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}}));
    let secret = secrets.create(&PostParams::default(), &secret).await.unwrap();
    let namespace = Api::<Namespace>::all(client.clone()).get("default").await.unwrap();
    let last = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    drop((lite, client, maps, secrets));

    let (_lite, client) = open(folder.path()).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let list = maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items, std::slice::from_ref(&kept));
    assert_eq!(Api::<Secret>::default_namespaced(client.clone()).get("s").await.unwrap(), secret);
    assert_eq!(Api::<Namespace>::all(client.clone()).get("default").await.unwrap(), namespace, "made once");

    // Versions continue to rise, and a client with an earlier one is told to list again.
    let patch = Patch::Merge(json!({"data": {"a": "2"}}));
    let changed = maps.patch("kept", &PatchParams::default(), &patch).await.unwrap();
    assert!(version(&changed) > last.parse().unwrap());
    assert_eq!(changed.uid(), kept.uid());
    let mut watch = maps.watch(&WatchParams::default(), &last).await.unwrap().boxed();
    assert!(matches!(watch.next().await, Some(Ok(WatchEvent::Error(status))) if status.code == 410));
    let from = list.metadata.resource_version.unwrap();
    let mut watch = maps.watch(&WatchParams::default(), &from).await.unwrap().boxed();
    assert!(matches!(watch.next().await, Some(Ok(WatchEvent::Modified(map))) if map == changed));
}

#[tokio::test]
async fn allocated_ports_and_addresses_are_restored() {
    let folder = tempfile::tempdir().unwrap();
    let service = |name: &str| -> Service {
        object(json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}))
    };
    let address = |service: &Service| service.spec.as_ref().unwrap().cluster_ip.clone().unwrap();
    let (lite, client) = open(folder.path()).await;
    let services: Api<Service> = Api::default_namespaced(client.clone());
    let first = services.create(&PostParams::default(), &service("first")).await.unwrap();
    let owner = json!({"apiVersion": "v1", "kind": "Service", "name": "first", "uid": first.uid()});
    let owned: ConfigMap = object(json!({"metadata": {"name": "owned", "ownerReferences": [owner]}}));
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    maps.create(&PostParams::default(), &owned).await.unwrap();
    drop((lite, client, services, maps));

    let (_lite, client) = open(folder.path()).await;
    let services: Api<Service> = Api::default_namespaced(client.clone());
    let second = services.create(&PostParams::default(), &service("second")).await.unwrap();
    assert_ne!(address(&first), address(&second));
    let port = first.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].node_port;
    let mut third = service("third");
    third.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].node_port = port;
    let refused = services.create(&PostParams::default(), &third).await.unwrap_err().to_string();
    assert!(refused.contains("already allocated"), "{refused}");
    services.delete("first", &DeleteParams::default()).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    assert!(maps.get_opt("owned").await.unwrap().is_none(), "it went with its owner");
}

fn definition() -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer", "maximum": 9}, "color": {"type": "string", "default": "red"},
    }}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.sea.io"},
        "spec": {
            "group": "sea.io", "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn boats(client: &Client) -> (Api<DynamicObject>, Api<DynamicObject>) {
    let kind = |group: &str, kind: &str| ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    let definitions = kind("apiextensions.k8s.io", "CustomResourceDefinition");
    let boats = kind("sea.io", "Boat");
    (Api::all_with(client.clone(), &definitions), Api::default_namespaced_with(client.clone(), &boats))
}

#[tokio::test]
async fn custom_kinds_are_served_from_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let boat = |name: &str, size: u32| -> DynamicObject {
        object(json!({"apiVersion": "sea.io/v1", "kind": "Boat", "metadata": {"name": name}, "spec": {"size": size}}))
    };
    let (lite, client) = open(folder.path()).await;
    let (definitions, all) = boats(&client);
    definitions.create(&PostParams::default(), &object(definition())).await.unwrap();
    let made = all.create(&PostParams::default(), &boat("a", 1)).await.unwrap();
    assert_eq!(made.data["spec"]["color"], "red");
    drop((lite, client, definitions, all));

    let (lite, client) = open(folder.path()).await;
    let (definitions, all) = boats(&client);
    assert_eq!(all.get("a").await.unwrap(), made);
    let refused = all.create(&PostParams::default(), &boat("b", 10)).await.unwrap_err().to_string();
    assert!(refused.contains("less than or equal to 9"), "{refused}");
    definitions.delete("boats.sea.io", &DeleteParams::default()).await.unwrap();
    drop((lite, client, definitions, all));

    let (_lite, client) = open(folder.path()).await;
    let (definitions, all) = boats(&client);
    assert!(all.list(&ListParams::default()).await.is_err(), "the kind went with its definition");
    definitions.create(&PostParams::default(), &object(definition())).await.unwrap();
    assert_eq!(all.list(&ListParams::default()).await.unwrap().items, [], "and so did its objects");
}

#[tokio::test]
async fn a_folder_is_locked_by_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let (lite, client) = open(folder.path()).await;
    assert_eq!(Lite::open(folder.path()).unwrap_err(), DataDirError::Locked);
    drop((lite, client));
    drop(opened(folder.path()).await);
}

/// A child that writes until it is killed, and prints each write that was answered.
#[test]
fn child_that_writes() {
    let Some(folder) = std::env::var_os("TIDEGATE_TEST_DATA_DIR") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (_lite, client) = open(Path::new(&folder)).await;
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        for nth in 0.. {
            let made = maps.create(&PostParams::default(), &config_map(&format!("m{nth}"), "1")).await.unwrap();
            println!("answered {} {}", made.name_any(), version(&made));
        }
    });
}

#[test]
fn answered_writes_survive_a_kill() {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child_that_writes", "--exact", "--nocapture"])
        .env("TIDEGATE_TEST_DATA_DIR", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let answer = |line: String| {
        let mut words = line.strip_prefix("answered ")?.split(' ');
        Some((words.next()?.to_owned(), words.next()?.parse::<u64>().ok()?))
    };
    let answered: Vec<(String, u64)> = lines.filter_map(answer).take(30).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (_lite, client) = open(folder.path()).await;
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        let highest = answered.iter().map(|(_, version)| *version).max().unwrap();
        for (name, number) in &answered {
            assert_eq!(version(&maps.get(name).await.unwrap()), *number, "{name}");
        }
        let made = maps.create(&PostParams::default(), &config_map("new", "1")).await.unwrap();
        assert!(version(&made) > highest);
    });
}
