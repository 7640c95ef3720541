//! A watch cache, with kube-rs as its client: the objects of another server are served under the same versions.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod documents;
mod expected;
mod histories;

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Client, Error, ResourceExt as _};
use serde_json::{Value, json};
use tidegate_lite::{Feed, Lite, WatchCacheKind, WatchCacheLimits};

fn kind(group: &str, plural: &str, kind: &str, namespaced: bool) -> WatchCacheKind {
    let [group, plural, kind] = [group, plural, kind].map(str::to_owned);
    WatchCacheKind {
        group,
        version: "v1".to_owned(),
        plural,
        kind,
        namespaced,
        forwards_writes: false,
        short: Vec::new(),
    }
}

struct Bed {
    _lite: Lite,
    feed: Feed,
    services: Api<DynamicObject>,
    client: Client,
}

fn bed(bytes_max: usize) -> Bed {
    let kinds = [kind("", "services", "Service", true), kind("", "pods", "Pod", true)];
    let limits = WatchCacheLimits { bytes_max, unconfirmed_removals_share: 0.5, unconfirmed_removals_count: 2 };
    let (lite, feeds) = Lite::watch_cache(&kinds, limits);
    let client = Client::new(lite.service(), "default");
    let feed = feeds[&(String::new(), "services".to_owned())].clone();
    Bed { _lite: lite, feed, services: services(&client), client }
}

fn services(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::erase::<k8s_openapi::api::core::v1::Service>(&()))
}

fn object(name: &str, version: u64) -> Vec<u8> {
    let labels = json!({"odd": (version % 2 == 1).to_string()});
    let metadata = json!({"name": name, "namespace": "shop", "resourceVersion": version.to_string(), "labels": labels, "managedFields": []});
    json!({"metadata": metadata, "spec": {"type": "ClusterIP"}, "status": {"v": version}}).to_string().into_bytes()
}

impl Bed {
    fn event(&self, name: &str, version: u64, gone: bool) {
        self.feed.event("shop", name, &object(name, version), gone);
    }

    fn list(&self, objects: &[(&str, u64)], reached: u64) {
        self.feed.list_begins();
        for (name, version) in objects {
            self.feed.listed("shop", name, &object(name, *version));
        }
        self.feed.list_done(&reached.to_string(), true, true);
    }

    async fn state(&self) -> (String, Vec<String>) {
        let list = self.services.list(&ListParams::default()).await.unwrap();
        (list.metadata.resource_version.unwrap_or_default(), list.items.iter().map(text).collect())
    }

    async fn watch(&self, from: &str) -> BoxStream<'static, Result<WatchEvent<DynamicObject>, Error>> {
        self.selected(WatchParams::default(), from).await
    }

    async fn selected(
        &self,
        params: WatchParams,
        from: &str,
    ) -> BoxStream<'static, Result<WatchEvent<DynamicObject>, Error>> {
        self.services.watch(&params, from).await.unwrap().boxed()
    }
}

fn text(object: &DynamicObject) -> String {
    format!("{}@{}", object.name_any(), object.resource_version().unwrap_or_default())
}

fn said(event: WatchEvent<DynamicObject>) -> String {
    match event {
        WatchEvent::Added(one) => format!("+{}", text(&one)),
        WatchEvent::Modified(one) => format!("~{}", text(&one)),
        WatchEvent::Deleted(one) => format!("-{}", text(&one)),
        WatchEvent::Bookmark(one) => format!("={}", one.metadata.resource_version),
        WatchEvent::Error(status) => format!("!{}", status.code),
    }
}

/// The next lines of a watch.
async fn next(watch: &mut BoxStream<'static, Result<WatchEvent<DynamicObject>, Error>>, count: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for _ in 0..count {
        let event = tokio::time::timeout(Duration::from_secs(20), watch.next()).await.expect("the watch is silent");
        match event {
            Some(event) => lines.push(said(event.unwrap())),
            None => lines.push("end".to_owned()),
        }
    }
    lines
}

fn code(failure: Error) -> u16 {
    if let Error::Api(status) = failure { status.code } else { panic!("not an answer: {failure}") }
}

#[tokio::test(start_paused = true)]
async fn objects_and_versions_pass_through_unchanged() {
    let bed = bed(1 << 20);
    assert_eq!(code(bed.services.list(&ListParams::default()).await.unwrap_err()), 429, "nothing is known yet");
    bed.list(&[("a", 5), ("b", 7)], 9);
    assert_eq!(bed.state().await, ("9".to_owned(), vec!["a@5".to_owned(), "b@7".to_owned()]));
    let in_shop = Api::<DynamicObject>::namespaced_with(
        bed.client.clone(),
        "shop",
        &ApiResource::erase::<k8s_openapi::api::core::v1::Service>(&()),
    );
    let one = in_shop.get("b").await.unwrap();
    let whole: Value = serde_json::to_value(&one).unwrap();
    let mut want: Value = serde_json::from_slice(&object("b", 7)).unwrap();
    (want["kind"], want["apiVersion"]) = ("Service".into(), "v1".into());
    assert_eq!(whole, want);
    assert_eq!(code(in_shop.get("c").await.unwrap_err()), 404);
    assert_eq!(code(in_shop.delete("b", &Default::default()).await.unwrap_err()), 405);
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    assert_eq!(code(in_shop.patch("b", &PatchParams::default(), &patch).await.unwrap_err()), 405);
    let metadata = in_shop.get_metadata("b").await.unwrap();
    assert_eq!(metadata.metadata.resource_version.as_deref(), Some("7"));
    let odd = bed.services.list(&ListParams::default().labels("odd=true").fields("metadata.name!=a")).await.unwrap();
    assert_eq!(odd.items.iter().map(text).collect::<Vec<_>>(), ["b@7"]);
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::all(bed.client.clone());
    assert_eq!(code(secrets.list(&ListParams::default()).await.unwrap_err()), 404, "a kind that is not served");
}

#[tokio::test(start_paused = true)]
async fn a_watch_resumes_as_at_the_other_server() {
    let bed = bed(1 << 20);
    bed.list(&[("a", 5), ("b", 7)], 9);
    let mut early = bed.watch("9").await;
    bed.event("a", 11, false);
    bed.event("b", 12, true);
    bed.event("c", 13, false);
    assert_eq!(next(&mut early, 3).await, ["~a@11", "-b@12", "+c@13"]);
    let mut later = bed.watch("11").await;
    assert_eq!(next(&mut later, 2).await, ["-b@12", "+c@13"]);
    assert_eq!(next(&mut bed.watch("8").await, 1).await, ["!410"], "what came before the list is not known");
    assert_eq!(next(&mut bed.watch("14").await, 1).await, ["!504"], "nobody has come so far");
    bed.feed.reached("20");
    assert!(bed.watch("20").await.next().now_or_never().is_none());
    // For a label selector, an object leaves when its label does.
    let mut odd = bed.selected(WatchParams::default().labels("odd=true"), "13").await;
    bed.event("c", 22, false);
    bed.event("c", 23, false);
    assert_eq!(next(&mut odd, 2).await, ["-c@22", "+c@23"]);
    // A streaming list, with the bookmark at its end.
    let params = WatchParams { send_initial_events: true, bookmarks: true, ..WatchParams::default() };
    let mut streamed = bed.selected(params, "0").await;
    assert_eq!(next(&mut streamed, 3).await, ["+a@11", "+c@23", "=23"]);
}

#[tokio::test(start_paused = true)]
async fn differences_of_a_list_become_watch_events() {
    let bed = bed(1 << 20);
    bed.list(&[("a", 5), ("b", 6), ("c", 7), ("d", 8)], 9);
    let mut watch = bed.watch("9").await;
    // Meanwhile a was changed at 12, b and c were deleted, and e was created at 10: the deletions get versions of their
    // own.
    bed.list(&[("a", 12), ("d", 8), ("e", 10)], 15);
    assert_eq!(next(&mut watch, 4).await, ["+e@10", "-b@11", "~a@12", "-c@13"]);
    assert_eq!(next(&mut bed.watch("11").await, 2).await, ["~a@12", "-c@13"], "between two of them as well");
    assert_eq!(bed.state().await.0, "15");
    // An incomplete list removes nothing, and a failed one has no effect.
    bed.feed.list_begins();
    bed.feed.listed("shop", "f", &object("f", 16));
    bed.feed.list_done("17", false, true);
    bed.feed.list_begins();
    bed.feed.list_failed();
    assert_eq!(next(&mut watch, 1).await, ["+f@16"]);
    assert_eq!(bed.state().await, ("17".to_owned(), ["a@12", "d@8", "e@10", "f@16"].map(str::to_owned).to_vec()));
}

#[tokio::test(start_paused = true)]
async fn watch_events_from_before_the_known_state_change_nothing() {
    let bed = bed(1 << 20);
    bed.list(&[("a", 8), ("b", 5)], 9);
    let mut watch = bed.watch("9").await;
    // An event of a's earlier state, the deletion of an earlier b, and an object that was deleted before the list.
    bed.event("a", 7, false);
    bed.event("b", 4, true);
    bed.event("c", 6, false);
    bed.event("b", 9, true);
    assert_eq!(bed.state().await, ("9".to_owned(), ["a@8", "b@5"].map(str::to_owned).to_vec()));
    bed.event("a", 10, false);
    assert_eq!(next(&mut watch, 1).await, ["~a@10"]);
    assert_eq!(bed.state().await, ("10".to_owned(), ["a@10", "b@5"].map(str::to_owned).to_vec()));
}

#[tokio::test(start_paused = true)]
async fn watch_events_during_a_list_override_the_list() {
    let bed = bed(1 << 20);
    bed.list(&[("a", 5), ("b", 6)], 9);
    let mut watch = bed.watch("9").await;
    bed.feed.list_begins();
    bed.feed.listed("shop", "a", &object("a", 5));
    bed.event("a", 11, false);
    bed.event("b", 12, true);
    bed.event("c", 13, false);
    bed.feed.listed("shop", "b", &object("b", 6));
    bed.feed.list_done("13", true, false);
    assert_eq!(next(&mut watch, 3).await, ["~a@11", "-b@12", "+c@13"]);
    assert_eq!(bed.state().await, ("13".to_owned(), ["a@11", "c@13"].map(str::to_owned).to_vec()));
    bed.event("d", 14, false);
    assert_eq!(next(&mut watch, 1).await, ["+d@14"], "nothing came twice");
    // A list that is newer than the watch, which reports some of it before the list is over.
    bed.feed.list_begins();
    for (name, version) in [("a", 11), ("c", 15), ("d", 16)] {
        bed.feed.listed("shop", name, &object(name, version));
    }
    bed.event("c", 15, false);
    bed.feed.list_done("16", true, true);
    assert_eq!(next(&mut watch, 2).await, ["~c@15", "~d@16"]);
    bed.event("d", 17, true);
    assert_eq!(next(&mut watch, 1).await, ["-d@17"], "nothing came twice");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_lacks_most_objects_must_be_confirmed() {
    let bed = bed(1 << 20);
    bed.list(&[("a", 5), ("b", 6), ("c", 7), ("d", 8)], 9);
    let mut watch = bed.watch("9").await;
    bed.list(&[], 20);
    assert_eq!(bed.state().await.1.len(), 4, "stale, and not empty");
    bed.list(&[], 20);
    assert_eq!(next(&mut watch, 4).await, ["-a@10", "-b@11", "-c@12", "-d@13"]);
    assert_eq!(bed.state().await, ("20".to_owned(), Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_kind_beyond_the_memory_limit_is_dropped() {
    let bed = bed(4096);
    bed.list(&[("a", 5)], 9);
    let many: Vec<String> = (0..40).map(|nth| format!("a{nth}")).collect();
    let many: Vec<(&str, u64)> = many.iter().map(|name| (&**name, 10)).collect();
    bed.list(&many, 20);
    assert_eq!(code(bed.services.list(&ListParams::default()).await.unwrap_err()), 503);
    assert_eq!(bed.feed.figures().bytes, 0);
    bed.list(&[("a", 5)], 30);
    assert_eq!(bed.state().await, ("30".to_owned(), vec!["a@5".to_owned()]), "it may be smaller the next time");
}

/// A client that lists and watches, loses its connection at random, and resumes from the last version that it saw.
#[derive(Default)]
struct Follower {
    objects: BTreeMap<String, String>,
    reached: String,
    watch: Option<BoxStream<'static, Result<WatchEvent<DynamicObject>, Error>>>,
}

impl Follower {
    async fn catch_up(&mut self, bed: &Bed) {
        loop {
            if self.reached.is_empty() {
                let (version, objects) = bed.state().await;
                let parts = |text: &String| text.split_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
                (self.reached, self.objects) = (version, objects.iter().map(parts).collect());
            }
            if self.watch.is_none() {
                self.watch = Some(bed.watch(&self.reached).await);
            }
            match self.watch.as_mut().unwrap().next().now_or_never() {
                None => return,
                Some(None) => self.watch = None,
                Some(Some(event)) => {
                    let line = said(event.unwrap());
                    if line == "!410" {
                        (self.reached, self.watch) = (String::new(), None);
                        continue;
                    }
                    let (name, version) = line[1..].split_once('@').expect(&line);
                    let before: u64 = self.reached.parse().unwrap();
                    assert!(version.parse::<u64>().unwrap() > before, "{line} after {before}");
                    self.reached = version.to_owned();
                    match &line[..1] {
                        "-" => drop(self.objects.remove(name)),
                        _ => drop(self.objects.insert(name.to_owned(), version.to_owned())),
                    }
                }
            }
        }
    }
}

/// Plays random changes at another server, which this one learns of by events, by lists, by lists concurrent with
/// events, and sometimes late.
#[track_caller]
fn play(seed: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (mut rng, bed) = (Rng::with_seed(seed), bed(1 << 20));
        let (mut version, mut truth) = (100, BTreeMap::<String, u64>::new());
        let list = |truth: &BTreeMap<String, u64>, version: u64| {
            let objects: Vec<(&str, u64)> = truth.iter().map(|(name, version)| (&**name, *version)).collect();
            // A list that lacks most objects is accepted the second time.
            bed.list(&objects, version);
            bed.list(&objects, version);
        };
        list(&truth, version);
        let mut followers = [Follower::default(), Follower::default(), Follower::default()];
        for _ in 0..60 {
            let heard = rng.u8(..4) > 0;
            for _ in 0..rng.u8(..8) {
                version += rng.u64(1..3);
                let name = format!("o{}", rng.u8(..9));
                let gone = truth.contains_key(&name) && rng.u8(..3) == 0;
                if gone {
                    truth.remove(&name);
                } else {
                    truth.insert(name.clone(), version);
                }
                if heard {
                    bed.event(&name, version, gone);
                }
            }
            if !heard || rng.u8(..6) == 0 {
                list(&truth, version);
            }
            for follower in &mut followers {
                match rng.u8(..4) {
                    0 => follower.watch = None,
                    1 => {}
                    _ => {
                        follower.catch_up(&bed).await;
                        let want: BTreeMap<String, String> =
                            truth.iter().map(|(name, version)| (name.clone(), version.to_string())).collect();
                        assert_eq!(follower.objects, want, "seed {seed}");
                    }
                }
            }
        }
    });
}

#[test]
fn a_follower_holds_the_objects_of_the_other_server() {
    for seed in 0..200 {
        play(seed);
    }
}
