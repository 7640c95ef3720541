//! An upstream server with another history than the known one: it was restored from a backup, or replaced by another
//! server.

use futures::{FutureExt as _, StreamExt as _};
use kube::api::{DynamicObject, ListParams};
use serde_json::Value;

use super::{bed, next, object, text};

#[tokio::test(start_paused = true)]
async fn watches_restart_after_a_restore_of_the_server() {
    let bed = bed(1 << 20);
    bed.list(&[("a", 50), ("b", 60)], 90);
    let mut watch = bed.watch("90").await;
    bed.list(&[("a", 5)], 9);
    assert_eq!(next(&mut watch, 2).await, ["!410", "end"]);
    assert_eq!(bed.state().await, ("9".to_owned(), vec!["a@5".to_owned()]));
    assert_eq!(next(&mut bed.watch("90").await, 1).await, ["!410"], "nobody waits for a version of the past");
    assert_eq!(next(&mut bed.watch("91").await, 1).await, ["!504"]);
    let mut watch = bed.watch("9").await;
    bed.event("a", 10, false);
    assert_eq!(next(&mut watch, 1).await, ["~a@10"]);
}

/// Plays lists concurrent with a watch, and checks that the watch then has to list again.
#[track_caller]
fn begins_again(objects: &[(&str, u64, &str)], reached: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let bed = bed(1 << 20);
        bed.list(&[("a", 5), ("b", 6), ("c", 7)], 9);
        let mut watch = bed.watch("9").await;
        bed.feed.list_begins();
        for (name, version, content) in objects {
            let mut object: Value = serde_json::from_slice(&object(name, *version)).unwrap();
            object["spec"]["type"] = (*content).into();
            bed.feed.listed("shop", name, object.to_string().as_bytes());
        }
        bed.feed.list_done(&reached.to_string(), true, true);
        assert_eq!(next(&mut watch, 2).await, ["!410", "end"]);
        let list = bed.services.list(&ListParams::default()).await.unwrap();
        let shown = |it: &DynamicObject| format!("{} {}", text(it), it.data["spec"]["type"].as_str().unwrap());
        let want = objects.iter().map(|(name, version, content)| format!("{name}@{version} {content}"));
        assert_eq!(list.items.iter().map(shown).collect::<Vec<_>>(), want.collect::<Vec<_>>());
        assert_eq!(list.metadata.resource_version, Some(reached.to_string()));
        let mut watch = bed.watch(&reached.to_string()).await;
        bed.event("a", 30, false);
        assert_eq!(next(&mut watch, 1).await, ["~a@30"]);
    });
}

#[test]
fn another_history_replaces_the_known_one_whatever_its_versions() {
    let usual = "ClusterIP";
    // The same versions of the objects and of the list, with other content.
    begins_again(&[("a", 5, "NodePort"), ("b", 6, usual), ("c", 7, usual)], 9);
    begins_again(&[("a", 5, "NodePort"), ("b", 6, usual), ("c", 7, usual)], 20);
    // Every object up to this version should be known.
    begins_again(&[("a", 8, usual), ("b", 6, usual), ("c", 7, usual)], 9);
    begins_again(&[("a", 4, usual), ("b", 6, usual), ("c", 7, usual)], 20);
    begins_again(&[("a", 5, usual), ("b", 6, usual), ("c", 7, usual), ("d", 3, usual)], 20);
    // A deletion for which there is no free version.
    begins_again(&[("a", 5, usual), ("b", 6, usual)], 9);
    // A version that has already been passed.
    begins_again(&[("a", 5, usual), ("b", 6, usual), ("c", 7, usual)], 8);
}

#[tokio::test(start_paused = true)]
async fn another_history_that_lacks_most_objects_must_be_confirmed() {
    let bed = bed(1 << 20);
    bed.list(&[("a", 50), ("b", 60), ("c", 70), ("d", 80)], 90);
    let mut watch = bed.watch("90").await;
    bed.list(&[], 9);
    assert_eq!(bed.state().await.1.len(), 4, "stale, and not empty");
    assert!(watch.next().now_or_never().is_none());
    // The next list is made concurrently with a watch, which is faster.
    bed.feed.list_begins();
    bed.feed.listed("shop", "a", &object("a", 5));
    bed.event("a", 10, false);
    bed.event("b", 11, false);
    bed.feed.list_done("11", true, false);
    assert_eq!(next(&mut watch, 2).await, ["!410", "end"]);
    assert_eq!(bed.state().await, ("11".to_owned(), vec!["a@10".to_owned(), "b@11".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_list_restores_managed_fields_that_were_not_stored() {
    let bed = bed(1 << 20);
    let kept = |name, version| {
        let mut object: Value = serde_json::from_slice(&object(name, version)).unwrap();
        object["metadata"].as_object_mut().unwrap().remove("managedFields");
        object.to_string()
    };
    bed.feed.list_begins();
    bed.feed.listed("shop", "a", kept("a", 5).as_bytes());
    bed.feed.list_done("9", true, true);
    let mut watch = bed.watch("9").await;
    let before = bed.feed.figures().bytes;
    bed.list(&[("a", 5)], 12);
    assert!(watch.next().now_or_never().is_none(), "nothing has changed");
    let list = bed.services.list(&ListParams::default()).await.unwrap();
    assert!(list.items[0].metadata.managed_fields.is_some() && bed.feed.figures().bytes > before);
    assert_eq!(list.metadata.resource_version.as_deref(), Some("12"));
}

/// A list lacks most objects, and the watch resumes at its version before a second list confirms it: no event of that
/// watch is served before the objects of the list.
#[tokio::test(start_paused = true)]
async fn the_state_stays_complete_until_a_doubted_list_is_confirmed() {
    for wins in [true, false] {
        let bed = bed(1 << 20);
        bed.list(&[("a", 50), ("b", 60), ("c", 70), ("d", 80)], 100);
        let mut watch = bed.watch("100").await;
        bed.list(&[("a", 105), ("new", 106)], 110);
        bed.event("later", 115, false);
        bed.feed.reached("116");
        let before = ["a@50", "b@60", "c@70", "d@80"].map(str::to_owned).to_vec();
        assert_eq!(bed.state().await, ("100".to_owned(), before));
        assert!(watch.next().now_or_never().is_none());
        bed.feed.list_begins();
        for (name, version) in [("a", 105), ("later", 115), ("new", 106)] {
            bed.feed.listed("shop", name, &object(name, version));
        }
        let mut want = vec!["a@105", "later@118", "new@106"];
        if wins {
            bed.feed.listed("shop", "later", &object("later", 118));
        } else {
            bed.event("later", 118, false);
            bed.event("new", 119, true);
            want.pop();
        }
        bed.feed.list_done(if wins { "120" } else { "119" }, true, wins);
        assert_eq!(
            bed.state().await,
            (if wins { "120" } else { "119" }.to_owned(), want.into_iter().map(str::to_owned).collect())
        );
        let told = next(&mut watch, if wins { 6 } else { 5 }).await;
        let changed: Vec<&str> = told.iter().map(String::as_str).filter(|it| !it.starts_with('-')).collect();
        let new = if wins { &["~a@105", "+new@106", "+later@118"][..] } else { &["~a@105", "+later@118"] };
        assert_eq!(changed, new, "{told:?}");
        assert_eq!(told.len() - new.len(), 3, "three are gone: {told:?}");
        bed.event("a", 130, false);
        assert_eq!(next(&mut watch, 1).await, ["~a@130"]);
    }
}
