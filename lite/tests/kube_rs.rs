//! kube-rs against the service within the process.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::time::Duration;

use futures::{Stream, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Event as CoreEvent, Namespace, Secret, Service};
use k8s_openapi::api::events::v1::Event;
use kube::api::{
    Api, DeleteParams, ListParams, ObjectList, ObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::{Client, Error, ResourceExt as _};
use serde_json::{Value, json};
use tidegate_lite::Lite;

fn client() -> (Lite, Client) {
    let lite = Lite::new();
    let client = Client::new(lite.service(), "default");
    (lite, client)
}

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    object(json!({"metadata": {"name": name}, "data": {"a": value}}))
}

fn code(failure: Error) -> u16 {
    if let Error::Api(status) = failure { status.code } else { panic!("not an answer: {failure}") }
}

/// The next line of a watch, in short; `None` at its end.
async fn next<S>(watch: &mut S) -> Option<String>
where
    S: Stream<Item = Result<WatchEvent<ConfigMap>, Error>> + Unpin,
{
    let event = tokio::time::timeout(Duration::from_secs(5), watch.next()).await.expect("the watch is silent")?;
    Some(match event.unwrap() {
        WatchEvent::Added(one) => format!("added {}", one.name_any()),
        WatchEvent::Modified(one) => format!("modified {}", one.name_any()),
        WatchEvent::Deleted(one) => format!("deleted {}", one.name_any()),
        WatchEvent::Bookmark(one) => {
            let ends = one.metadata.annotations.contains_key("k8s.io/initial-events-end");
            format!("bookmark {}", if ends { "end" } else { "" })
        }
        WatchEvent::Error(status) => format!("error {}", status.code),
    })
}

#[tokio::test]
async fn objects_are_written_and_read() {
    let (_lite, client) = client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let made = maps.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    assert!(made.uid().is_some() && made.creation_timestamp().is_some());
    assert_eq!(code(maps.create(&PostParams::default(), &config_map("a", "1")).await.unwrap_err()), 409);
    let same = maps.replace("a", &PostParams::default(), &made).await.unwrap();
    assert_eq!(same.resource_version(), made.resource_version());
    let mut changed = made.clone();
    changed.data = Some([("a".to_owned(), "2".to_owned())].into());
    let changed = maps.replace("a", &PostParams::default(), &changed).await.unwrap();
    assert_eq!(code(maps.replace("a", &PostParams::default(), &made).await.unwrap_err()), 409);
    assert_eq!(maps.get_metadata("a").await.unwrap().resource_version(), changed.resource_version());
    assert_eq!(maps.list_metadata(&ListParams::default()).await.unwrap().items.len(), 1);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    maps.create(&dry, &config_map("b", "1")).await.unwrap();
    assert_eq!(code(maps.get("b").await.unwrap_err()), 404);
    let wrong = DeleteParams::default()
        .preconditions(kube::api::Preconditions { uid: Some("x".into()), resource_version: None });
    assert_eq!(code(maps.delete("a", &wrong).await.unwrap_err()), 409);
    assert!(maps.delete("a", &DeleteParams::default()).await.unwrap().is_right());
    assert_eq!(code(maps.get("a").await.unwrap_err()), 404);
    let elsewhere: Api<ConfigMap> = Api::namespaced(client, "nowhere");
    assert_eq!(code(elsewhere.create(&PostParams::default(), &config_map("a", "1")).await.unwrap_err()), 404);
}

#[tokio::test]
async fn status_and_scale_updates_do_not_change_the_generation() {
    let (_lite, client) = client();
    let deployments: Api<Deployment> = Api::default_namespaced(client);
    let deployment: Deployment = object(json!({
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "echo"}]}}},
        "status": {"replicas": 9},
    }));
    let made = deployments.create(&PostParams::default(), &deployment).await.unwrap();
    assert_eq!(made.metadata.generation, Some(1));
    assert_eq!(made.status.unwrap().replicas, None);
    let status = Patch::Merge(json!({"status": {"replicas": 1}, "spec": {"replicas": 7}}));
    let marked = deployments.patch_status("web", &PatchParams::default(), &status).await.unwrap();
    assert_eq!((marked.metadata.generation, marked.spec.unwrap().replicas), (Some(1), Some(1)));
    let scaled =
        deployments.patch_scale("web", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 3}}))).await;
    assert_eq!(scaled.unwrap().status.unwrap().selector.as_deref(), Some("app=web"));
    let image =
        Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "echo:2"}]}}}}));
    let patched = deployments.patch("web", &PatchParams::default(), &image).await.unwrap();
    assert_eq!((patched.metadata.generation, patched.spec.unwrap().replicas), (Some(3), Some(3)));
    assert_eq!(patched.status.unwrap().replicas, Some(1));
    let apply = Patch::Apply(json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 1}}));
    assert_eq!(code(deployments.patch("web", &PatchParams::apply("x"), &apply).await.unwrap_err()), 409);
    let forced = deployments.patch("web", &PatchParams::apply("x").force(), &apply).await.unwrap();
    assert_eq!((forced.metadata.generation, forced.spec.unwrap().replicas), (Some(4), Some(1)));
    let owners = forced.metadata.managed_fields.unwrap();
    let owner = owners.iter().find(|one| one.manager.as_deref() == Some("x")).unwrap();
    assert_eq!(owner.fields_v1.as_ref().unwrap().0, json!({"f:spec": {"f:replicas": {}}}));
}

#[tokio::test]
async fn pages_show_one_version() {
    let (_, client) = client();
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    for name in ["a", "b", "c", "d"] {
        let map =
            ConfigMap { metadata: ObjectMeta { name: Some(name.into()), ..Default::default() }, ..Default::default() };
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    let names = |list: &ObjectList<ConfigMap>| list.items.iter().map(|one| one.name_any()).collect::<String>();
    let first = maps.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!((names(&first).as_str(), first.metadata.remaining_item_count), ("ab", Some(2)));
    maps.delete("c", &DeleteParams::default()).await.unwrap();
    let label = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
    maps.patch("d", &PatchParams::default(), &label).await.unwrap();
    let token = first.metadata.continue_.clone().unwrap();
    let rest = maps.list(&ListParams::default().limit(2).continue_token(&token)).await.unwrap();
    assert_eq!((names(&rest).as_str(), &rest.metadata.continue_), ("cd", &None));
    assert_eq!(rest.items[1].metadata.labels, None, "as it was");
    assert_eq!(rest.metadata.resource_version, first.metadata.resource_version);
    for nth in 0..200 {
        let label = Patch::Merge(json!({"metadata": {"labels": {"x": nth.to_string()}}}));
        maps.patch("d", &PatchParams::default(), &label).await.unwrap();
    }
    let again = maps.list(&ListParams::default().limit(1).continue_token(&token)).await.unwrap();
    assert_eq!(names(&again), "c", "young history is kept");
}

#[tokio::test]
async fn a_watch_starts_at_the_version_of_a_list() {
    let (lite, client) = client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    maps.create(&PostParams::default(), &config_map("before", "1")).await.unwrap();
    let listed = maps.list(&ListParams::default()).await.unwrap();
    let version = listed.metadata.resource_version.unwrap();
    maps.create(&PostParams::default(), &config_map("between", "1")).await.unwrap();
    let mut watch = maps.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    assert_eq!(next(&mut watch).await.as_deref(), Some("added between"));
    let patch = Patch::Merge(json!({"data": {"a": "2"}}));
    maps.patch("before", &PatchParams::default(), &patch).await.unwrap();
    maps.patch("before", &PatchParams::default(), &patch).await.unwrap();
    maps.delete("between", &DeleteParams::default()).await.unwrap();
    assert_eq!(next(&mut watch).await.as_deref(), Some("modified before"));
    assert_eq!(next(&mut watch).await.as_deref(), Some("deleted between"));
    lite.close_watches();
    assert_eq!(next(&mut watch).await, None);
}

#[tokio::test]
async fn a_selector_watch_sees_objects_enter_and_leave() {
    let (_lite, client) = client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    maps.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let mut watch = maps.watch(&WatchParams::default().labels("on=yes"), "").await.unwrap().boxed();
    for label in ["yes", "yes", "no"] {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"on": label, "n": label}}}));
        maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    }
    assert_eq!(next(&mut watch).await.as_deref(), Some("added a"));
    assert_eq!(next(&mut watch).await.as_deref(), Some("deleted a"));
    let wrong = WatchParams::default().fields("data.a=1");
    assert_eq!(code(maps.watch(&wrong, "").await.map(drop).unwrap_err()), 400);
}

#[tokio::test]
async fn a_streaming_list_ends_with_a_bookmark() {
    let (_lite, client) = client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    for name in ["b", "a"] {
        maps.create(&PostParams::default(), &config_map(name, "1")).await.unwrap();
    }
    let mut watch = maps.watch(&WatchParams::default().initial_events(), "").await.unwrap().boxed();
    for expected in ["added a", "added b", "bookmark end"] {
        assert_eq!(next(&mut watch).await.as_deref(), Some(expected));
    }
}

#[tokio::test]
async fn a_version_of_an_earlier_process_is_410_gone() {
    let (_lite, client) = client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let mut watch = maps.watch(&WatchParams::default(), "1").await.unwrap().boxed();
    assert_eq!(next(&mut watch).await.as_deref(), Some("error 410"));
    assert_eq!(next(&mut watch).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_gets_bookmarks_and_ends_at_its_timeout() {
    let (_lite, client) = client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let version = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let watch = maps.watch(&WatchParams::default().timeout(270), &version).await.unwrap();
    let events: Vec<_> = watch.try_collect().await.unwrap();
    let bookmarks = events.iter().filter(|event| matches!(event, WatchEvent::Bookmark(_))).count();
    assert_eq!((events.len(), bookmarks), (5, 5));
}

#[tokio::test(start_paused = true)]
async fn a_read_waits_for_a_future_version() {
    let (_lite, client) = client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let far = ListParams::default().at("9000000000000000000").matching(kube::api::VersionMatch::NotOlderThan);
    assert_eq!(code(maps.list(&far).await.unwrap_err()), 504);
    let near: u64 =
        maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap().parse().unwrap();
    let near = ListParams::default().at(&(near + 1).to_string()).matching(kube::api::VersionMatch::NotOlderThan);
    let (listed, _) = tokio::join!(maps.list(&near), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        maps.create(&PostParams::default(), &config_map("a", "1")).await.unwrap()
    });
    assert_eq!(listed.unwrap().items.len(), 1);
}

#[tokio::test]
async fn deleting_a_namespace_deletes_its_objects() {
    let (_lite, client) = client();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "team");
    namespaces.create(&PostParams::default(), &object(json!({"metadata": {"name": "team"}}))).await.unwrap();
    maps.create(&PostParams::default(), &config_map("free", "1")).await.unwrap();
    let held: ConfigMap = object(json!({"metadata": {"name": "held", "finalizers": ["a.b/c"]}}));
    maps.create(&PostParams::default(), &held).await.unwrap();
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    assert_eq!(namespaces.get("team").await.unwrap().status.unwrap().phase.as_deref(), Some("Terminating"));
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 1);
    assert_eq!(code(maps.create(&PostParams::default(), &config_map("new", "1")).await.unwrap_err()), 403);
    maps.patch("held", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}})))
        .await
        .unwrap();
    assert_eq!(code(namespaces.get("team").await.unwrap_err()), 404);
    assert_eq!(code(namespaces.delete("default", &DeleteParams::default()).await.unwrap_err()), 403);
}

/// The conditions of a namespace that name something that is left.
async fn left(namespaces: &Api<Namespace>) -> Vec<String> {
    let conditions = namespaces.get("team").await.unwrap().status.unwrap().conditions.unwrap_or_default();
    assert!(conditions.is_empty() || conditions.len() == 5, "{conditions:?}");
    let holds = conditions.into_iter().filter(|condition| condition.status == "True");
    holds.map(|condition| format!("{}: {}", condition.type_, condition.message.unwrap_or_default())).collect()
}

#[tokio::test]
async fn a_namespace_that_is_deleted_names_what_is_left_in_it() {
    let (_lite, client) = client();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "team");
    namespaces.create(&PostParams::default(), &object(json!({"metadata": {"name": "team"}}))).await.unwrap();
    for name in ["one", "two"] {
        let held: ConfigMap = object(json!({"metadata": {"name": name, "finalizers": ["a.b/c"]}}));
        maps.create(&PostParams::default(), &held).await.unwrap();
    }
    assert_eq!(left(&namespaces).await, [""; 0]);
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    for (name, count) in [("one", 2), ("two", 1)] {
        let want = [
            format!(
                "NamespaceContentRemaining: Some resources are remaining: configmaps. has {count} resource instances"
            ),
            format!(
                "NamespaceFinalizersRemaining: Some content in the namespace has finalizers remaining: a.b/c in {count} resource instances"
            ),
        ];
        assert_eq!(left(&namespaces).await, want);
        maps.patch(name, &PatchParams::default(), &release).await.unwrap();
    }
    assert_eq!(code(namespaces.get("team").await.unwrap_err()), 404);
}

#[tokio::test]
async fn only_the_path_finalize_changes_the_finalizers_of_a_namespace() {
    let (_lite, client) = client();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let finalize = async |method: &str, finalizers: &[&str]| {
        let mut namespace = namespaces.get("team").await.unwrap();
        namespace.spec = object(json!({"finalizers": finalizers}));
        namespace.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        let request = http::Request::builder().method(method).uri("/api/v1/namespaces/team/finalize");
        let body = serde_json::to_vec(&namespace).unwrap();
        client.request::<Namespace>(request.header("content-type", "application/json").body(body).unwrap()).await
    };
    let of = |namespace: Namespace| namespace.spec.unwrap().finalizers.unwrap_or_default();
    namespaces.create(&PostParams::default(), &object(json!({"metadata": {"name": "team"}}))).await.unwrap();
    let patch = Patch::Merge(json!({"spec": {"finalizers": ["a.b/c"]}}));
    let patched = namespaces.patch("team", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(of(patched), ["kubernetes"]);
    let finalized = finalize("PUT", &["kubernetes", "a.b/c"]).await.unwrap();
    assert!(!finalized.metadata.labels.unwrap().contains_key("a"), "nothing else changes");
    assert_eq!(code(finalize("PATCH", &[]).await.unwrap_err()), 405);
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    assert_eq!(of(namespaces.get("team").await.unwrap()), ["kubernetes", "a.b/c"]);
    finalize("PUT", &["kubernetes"]).await.unwrap();
    assert_eq!(code(namespaces.get("team").await.unwrap_err()), 404);
}

#[tokio::test]
async fn secrets_and_services_get_defaults() {
    let (_lite, client) = client();
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let secret: Secret = object(json!({"metadata": {"generateName": "s-"}, "stringData": {"a": "x"}}));
    let made = secrets.create(&PostParams::default(), &secret).await.unwrap();
    assert!(made.name_any().starts_with("s-") && made.name_any().len() == 7);
    assert_eq!(made.data.unwrap()["a"].0, b"x");
    let tls = secrets.list(&ListParams::default().fields("type=kubernetes.io/tls")).await.unwrap();
    assert!(tls.items.is_empty());
    let services: Api<Service> = Api::default_namespaced(client);
    let service: Service = object(json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}));
    let made = services.create(&PostParams::default(), &service).await.unwrap();
    assert!(made.spec.unwrap().cluster_ip.unwrap().starts_with("10.96."));
    services.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    assert!(services.list(&ListParams::default()).await.unwrap().items.is_empty());
}

/// Checks the metadata path of the bookmark that ends the initial events, for a watch in this form.
#[track_caller]
fn check_mark(text: &str, metadata: &str) {
    let frames: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let types: Vec<_> = frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["ADDED", "BOOKMARK"]);
    let mark = frames[1].pointer(metadata).unwrap_or_else(|| panic!("no {metadata} in {}", frames[1]));
    assert_eq!(mark["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(mark["resourceVersion"], frames[0].pointer(metadata).unwrap()["resourceVersion"]);
}

#[tokio::test(start_paused = true)]
async fn initial_events_end_with_a_bookmark_in_every_encoding() {
    let (_lite, client) = client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    maps.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    for (form, metadata) in [
        ("application/json", "/object/metadata"),
        ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "/object/metadata"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io", "/object/rows/0/object/metadata"),
    ] {
        let options = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let path = format!("/api/v1/namespaces/default/configmaps?{options}&timeoutSeconds=1");
        let request = http::Request::get(path).header("accept", form).body(Vec::new()).unwrap();
        check_mark(&client.request_text(request).await.unwrap(), metadata);
    }
}

#[tokio::test]
async fn events_are_served_in_both_groups() {
    let (_lite, client) = client();
    let (old, new): (Api<CoreEvent>, Api<Event>) =
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client));
    let mut watch = new.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    let event = json!({
        "metadata": {"name": "web.1"}, "eventTime": "2026-11-21T03:12:04.733123Z", "type": "Warning", "action": "Route",
        "reason": "RuleLost", "note": "lost", "regarding": {"kind": "Ingress", "namespace": "default", "name": "web", "uid": "7"},
        "reportingController": "tidegate.io/ingress", "reportingInstance": "edge-0",
    });
    let made = new.create(&PostParams::default(), &object(event.clone())).await.unwrap();
    assert_eq!((made.note.as_deref(), made.regarding.unwrap().uid.as_deref()), (Some("lost"), Some("7")));
    assert_eq!(code(new.create(&PostParams::default(), &object(event)).await.unwrap_err()), 409);

    let asked =
        "involvedObject.kind=Ingress,involvedObject.name=web,involvedObject.namespace=default,involvedObject.uid=7";
    let found = old.list(&ListParams::default().fields(asked)).await.unwrap();
    assert_eq!(found.items.iter().map(|event| event.message.as_deref()).collect::<Vec<_>>(), [Some("lost")]);

    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-11-21T03:32:04.733123Z"}});
    let told = new.patch("web.1", &PatchParams::default(), &Patch::Merge(&series)).await.unwrap();
    assert_eq!((told.series.unwrap().count, told.note.as_deref()), (2, Some("lost")));
    let same = new.patch("web.1", &PatchParams::default(), &Patch::Merge(json!({}))).await.unwrap();
    assert_eq!((same.series.unwrap().count, same.metadata.resource_version), (2, told.metadata.resource_version));
    assert_eq!(old.get("web.1").await.unwrap().series.unwrap().count, Some(2));
    assert_eq!(new.list(&ListParams::default()).await.unwrap().items[0].note.as_deref(), Some("lost"));

    for count in [None, Some(2)] {
        let event = tokio::time::timeout(Duration::from_secs(5), watch.next()).await.unwrap().unwrap().unwrap();
        let (WatchEvent::Added(event) | WatchEvent::Modified(event)) = event else { panic!("{event:?}") };
        assert_eq!((event.note.as_deref(), event.series.map(|series| series.count)), (Some("lost"), count));
    }
}
