//! The content of a cache that was closed in order and is opened again.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use tempfile::TempDir;
use tidegate_config::model::auth::{KeySet, KeySource};
use tidegate_config::object::{Kind, ObjectName};
use tidegate_control::options::UnconfirmedRemovals;
use tidegate_control::{
    Batch, Cache, CacheMetrics, CacheOptions, Collection, PartitionChange, Restored, Seal, Store, StoredCollection,
};

use crate::life::options;
use crate::model::{object, version};

const SECRET: Collection = Collection { kind: Kind::Secret, namespace: None };

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("key"), [7; 32]).unwrap();
    folder
}

fn open(options: CacheOptions, selection: &str, listed: bool) -> (Option<Cache>, Restored) {
    open_for(options, StoredCollection { collection: SECRET, selection: selection.to_owned(), listed, whole: false })
}

fn open_for(options: CacheOptions, kept: StoredCollection) -> (Option<Cache>, Restored) {
    let metrics = CacheMetrics::register(&Registry::new()).unwrap();
    Cache::open(options, (vec![kept], Vec::new()), UnconfirmedRemovals { share: 0.5, count: 10 }, &metrics)
}

/// A cache with one Secret as of version 7.
fn written(folder: &TempDir) {
    let (cache, restored) = open(options(folder.path()), "all", true);
    assert!(restored.collections.is_empty());
    list(cache.unwrap());
}

/// Stores a list of one Secret at version 7.
fn list(cache: Cache) {
    cache.reached_by().learn(&BTreeSet::new(), None);
    let sink = cache.sink(&SECRET, false).unwrap();
    sink.list_begins();
    sink.listed(&ObjectName::new("shop", "tls"), &object("tls", 1, 6));
    sink.list_done(version(7), true, true);
    cache.close();
}

/// Compares the version to resume from and the number of objects; `None` if nothing is restored.
#[track_caller]
fn check(options: CacheOptions, selection: &str, want: Option<(Option<&str>, usize)>) {
    let (cache, restored) = open(options, selection, true);
    let collection = restored.collections.first();
    assert_eq!(collection.map(|collection| (collection.resume.as_deref(), collection.objects.len())), want);
    cache.unwrap().close();
}

#[test]
fn a_reopened_cache_resumes_at_its_last_version() {
    let folder = folder();
    written(&folder);
    check(options(folder.path()), "all", Some((Some("7"), 1)));
}

#[test]
fn a_watch_does_not_resume_over_objects_that_cannot_be_read() {
    let folder = folder();
    written(&folder);
    let seal = Seal::read(&folder.path().join("key")).unwrap();
    let store = Store::open(folder.path(), Some(Arc::new(seal))).unwrap();
    let partitions = store.partitions().unwrap();
    let (name, position) = partitions.iter().find(|(name, _)| name.starts_with("Secret")).expect("one of Secrets");
    // As another version of the program may have written it.
    let values = [("shop/odd".to_owned(), Some(b"{}".to_vec()))].into();
    let change = PartitionChange { sealed: true, replace: false, values, position: position.clone() };
    store.commit(&Batch::from([(name.as_str().into(), change)])).unwrap();
    drop(store);
    check(options(folder.path()), "all", Some((None, 1)));
}

#[test]
fn a_damaged_cache_is_set_aside_and_counted() {
    for part in [0, 1, 2] {
        let folder = folder();
        written(&folder);
        let file = folder.path().join("cluster-cache/objects.redb");
        let length = file.metadata().unwrap().len() * part / 3;
        std::fs::File::options().write(true).open(&file).unwrap().set_len(length).unwrap();
        let registry = Registry::new();
        let metrics = CacheMetrics::register(&registry).unwrap();
        let kept = StoredCollection { collection: SECRET, selection: "all".to_owned(), listed: true, whole: false };
        let removals = UnconfirmedRemovals { share: 0.5, count: 10 };
        let (cache, restored) = Cache::open(options(folder.path()), (vec![kept], Vec::new()), removals, &metrics);
        assert!(restored.collections.is_empty(), "{part}");
        let damages = registry.gather().into_iter().find(|it| it.name() == "tidegate_cache_damaged_total").unwrap();
        assert!((damages.get_metric()[0].get_counter().get_value() - 1.0).abs() < 0.1, "{part}");
        assert!(file.with_file_name("objects.redb.unreadable").is_file(), "{part}");
        list(cache.unwrap());
        check(options(folder.path()), "all", Some((Some("7"), 1)));
    }
}

/// An edge that starts alone knows then that there are none, instead of waiting for them.
#[test]
fn a_kind_that_was_not_served_is_restored_without_objects() {
    let folder = folder();
    written(&folder);
    let (cache, _) = open(options(folder.path()), "all", true);
    let cache = cache.unwrap();
    cache.sink(&SECRET, true).unwrap().unserved();
    cache.close();
    check(options(folder.path()), "all", Some((None, 0)));
}

/// The version from which a process would resume if it started with the current files, as after a power cut.
fn version_on_disk(folder: &TempDir) -> Option<String> {
    let copy = tempfile::tempdir().unwrap();
    std::fs::create_dir(copy.path().join("cluster-cache")).unwrap();
    for file in ["key", "cluster-cache/objects.redb"] {
        std::fs::copy(folder.path().join(file), copy.path().join(file)).unwrap();
    }
    let (cache, restored) = open(options(copy.path()), "all", true);
    cache.unwrap().close();
    restored.collections.first()?.resume.as_deref().map(str::to_owned)
}

#[tokio::test]
async fn the_version_of_a_failed_watch_is_soon_on_disk() {
    let folder = folder();
    written(&folder);
    let (cache, _) = open(options(folder.path()), "all", true);
    let cache = cache.unwrap();
    let sink = cache.sink(&SECRET, true).unwrap();
    sink.reached(&version(9));
    sink.interrupted();
    let written = async {
        while version_on_disk(&folder).as_deref() != Some("9") {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), written).await.expect("it waits for other changes");
    cache.close();
}

#[test]
fn versions_of_another_server_are_not_resumed() {
    let folder = folder();
    written(&folder);
    let other = || CacheOptions { server: "https://other.example".to_owned(), ..options(folder.path()) };
    let (cache, restored) = open(other(), "all", true);
    assert!(restored.collections[0].resume.is_none());
    // From now on it is this server's cache, and nothing has been listed.
    let cache = cache.unwrap();
    cache.reached_by().learn(&BTreeSet::new(), None);
    cache.close();
    check(other(), "all", Some((None, 1)));
}

#[test]
fn versions_of_another_cluster_are_dropped_before_its_uid_is_stored() {
    let folder = folder();
    let learn = |cluster: &str| {
        let (cache, restored) = open(options(folder.path()), "all", true);
        let cache = cache.unwrap();
        cache.reached_by().learn(&BTreeSet::new(), Some(cluster));
        cache.close();
        restored
    };
    written(&folder);
    learn("one");
    assert_eq!(learn("one").collections[0].resume.as_deref(), Some("7"));
    // Another cluster answers at the same URL, and the process ends before it has listed anything.
    assert_eq!(learn("two").cluster.as_deref(), Some("one"));
    let restored = learn("two");
    assert_eq!((restored.cluster.as_deref(), restored.collections[0].resume.as_deref()), (Some("two"), None));
    assert_eq!(restored.collections[0].objects.len(), 1, "the stored object still serves");
}

#[tokio::test]
async fn objects_of_another_selection_are_not_restored() {
    let folder = folder();
    written(&folder);
    check(options(folder.path()), "type=other", None);
    check(options(folder.path()), "all", Some((Some("7"), 1)));
    // The age of stored objects has a resolution of one second.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    list(open(options(folder.path()), "type=other", true).0.unwrap());
    check(options(folder.path()), "type=other", Some((Some("7"), 1)));
    check(options(folder.path()), "all", None);
}

#[test]
fn objects_in_the_other_form_are_routed_and_listed_before_they_are_served() {
    for whole in [false, true] {
        let folder = folder();
        let kept = |whole| StoredCollection { collection: SECRET, selection: "all".to_owned(), listed: true, whole };
        list(open_for(options(folder.path()), kept(whole)).0.unwrap());
        // This process and the next one are killed before they have received an event.
        for _ in 0..2 {
            let (cache, Restored { collections, .. }) = open_for(options(folder.path()), kept(!whole));
            cache.unwrap().close();
            let collection = &collections[0];
            assert_eq!(
                (collection.objects.len(), collection.raw.len(), collection.resume.as_deref()),
                (1, 0, None),
                "{whole}"
            );
        }
        let (cache, Restored { collections, .. }) = open_for(options(folder.path()), kept(whole));
        cache.unwrap().close();
        let collection = &collections[0];
        assert_eq!((collection.objects.len(), collection.raw.len()), (1, usize::from(whole)), "{whole}");
        assert_eq!(collection.resume.as_deref(), Some("7"), "{whole}");
    }
}

#[test]
fn without_the_key_secrets_are_deleted() {
    let folder = folder();
    written(&folder);
    let (cache, restored) = open(CacheOptions { key_file: None, ..options(folder.path()) }, "all", true);
    assert!(restored.collections.is_empty());
    let cache = cache.unwrap();
    assert!(cache.sink(&SECRET, false).is_none());
    cache.close();
    check(options(folder.path()), "all", None);
}

#[test]
fn dns_names_and_sockets_are_restored() {
    let folder = folder();
    let cache = open(options(folder.path()), "all", true).0.unwrap();
    let socket: SocketAddr = "192.0.2.9:6443".parse().unwrap();
    cache.reached_by().learn(&BTreeSet::from([socket]), Some("one"));
    let names = cache.names();
    names.value("db.example", Some(br#"["192.0.2.1","2001:db8::1"]"#));
    names.value("gone.example", Some(br#"["192.0.2.2"]"#));
    names.value("unwanted.example", Some(br#"["192.0.2.3"]"#));
    names.value("gone.example", None);
    names.retain(["db.example", "gone.example"].map(str::to_owned));
    cache.close();
    let (cache, Restored { names, sockets, cluster, .. }) = open(options(folder.path()), "all", true);
    let names: Vec<String> = names.iter().map(|(name, addresses)| format!("{name} {addresses:?}")).collect();
    assert_eq!((names, sockets), (vec!["db.example [192.0.2.1, 2001:db8::1]".to_owned()], vec![socket]));
    assert_eq!(cluster.as_deref(), Some("one"));
    cache.unwrap().close();
}

#[test]
fn keys_of_issuers_are_restored() {
    let keys = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
    let folder = folder();
    let cache = open(options(folder.path()), "all", true).0.unwrap();
    let sink = cache.key_sets();
    sink.value("jwks http://a/keys", Some(keys.as_bytes()));
    sink.value("issuer https://a", Some(keys.as_bytes()));
    sink.value("jwks http://unwanted/", Some(keys.as_bytes()));
    sink.value("jwks http://damaged/", Some(b"{"));
    sink.retain(["jwks http://a/keys", "issuer https://a", "jwks http://damaged/"].map(str::to_owned));
    cache.close();
    let (cache, Restored { key_sets, .. }) = open(options(folder.path()), "all", true);
    let sources = [KeySource::Jwks("http://a/keys".into()), KeySource::Issuer("https://a".into())];
    assert_eq!(key_sets.keys().cloned().collect::<Vec<_>>(), sources);
    let read = KeySet::read(keys.as_bytes()).unwrap();
    assert!(key_sets.values().all(|keys| **keys == read));
    cache.unwrap().close();
}

#[test]
fn secrets_by_name_are_stored_one_by_one() {
    let folder = folder();
    let cache = open(options(folder.path()), "by name", false).0.unwrap();
    let sink = cache.sink(&SECRET, false).unwrap();
    for name in ["one", "two", "three"] {
        sink.event(&ObjectName::new("shop", name), Some(&object(name, 1, 6)), None);
    }
    sink.event(&ObjectName::new("shop", "two"), None, None);
    sink.retain(["shop/one".to_owned()]);
    cache.close();
    let (cache, restored) = open(options(folder.path()), "by name", false);
    let collection = &restored.collections[0];
    let names: Vec<&str> = collection.objects.iter().map(|object| &*object.meta.object.name.name).collect();
    assert_eq!((collection.resume.as_deref(), names), (None, vec!["one"]));
    cache.unwrap().close();
}

#[test]
fn after_a_start_without_a_key_any_key_is_accepted() {
    let folder = folder();
    written(&folder);
    let (cache, _) = open(CacheOptions { key_file: None, ..options(folder.path()) }, "all", true);
    cache.unwrap().close();
    std::fs::write(folder.path().join("key"), [8; 32]).unwrap();
    check(options(folder.path()), "all", None);
}

#[test]
fn sockets_that_were_not_seen_again_are_dropped() {
    let folder = folder();
    let learn = |socket: &str| {
        let (cache, restored) = open(options(folder.path()), "all", true);
        let cache = cache.unwrap();
        cache.reached_by().learn(&BTreeSet::from([socket.parse().unwrap()]), None);
        cache.close();
        restored.sockets
    };
    assert!(learn("192.0.2.1:6443").is_empty());
    assert_eq!(learn("192.0.2.2:6443"), ["192.0.2.1:6443".parse().unwrap()]);
    assert_eq!(learn("192.0.2.3:6443"), ["192.0.2.2:6443".parse().unwrap()]);
}

#[test]
fn a_disk_failure_is_counted_and_causes_a_list() {
    let folder = folder();
    let inner = folder.path().join("cluster-cache");
    std::fs::write(&inner, "no folder").unwrap();
    let registry = Registry::new();
    let metrics = CacheMetrics::register(&registry).unwrap();
    let kept = StoredCollection { collection: SECRET, selection: "all".to_owned(), listed: true, whole: false };
    let removals = UnconfirmedRemovals { share: 0.5, count: 10 };
    let (cache, _) = Cache::open(options(folder.path()), (vec![kept], Vec::new()), removals, &metrics);
    let (mut lost, cache) = cache.map(|cache| (cache.lost(), cache)).unwrap();
    let sink = cache.sink(&SECRET, false).unwrap();
    sink.list_begins();
    std::fs::remove_file(&inner).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let asked = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), lost.next()).await });
    assert_eq!(asked.unwrap(), [SECRET]);
    let losses = registry.gather().into_iter().find(|it| it.name() == "tidegate_cache_losses_total").unwrap();
    assert!(losses.get_metric()[0].get_counter().get_value() >= 1.0);
    cache.close();
}
