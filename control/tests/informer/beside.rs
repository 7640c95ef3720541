//! Periodic and requested lists: they are made concurrently with the watch, whose events continue and stay in effect.

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;

/// The events after the first page of the concurrent list.
enum Then {
    /// The watch sends this, which causes this event.
    Tells(String, &'static str),
    /// The watch ends regularly, and the next one has begun.
    Ends,
    /// The second page arrives.
    Page(String),
}
use Then::{Ends, Page, Tells};

/// A body that a test sends in steps.
fn relay() -> (UnboundedSender<String>, Answer) {
    let (sender, receiver): (_, UnboundedReceiver<String>) = unbounded_channel();
    (sender, Answer::steps(vec![Step::Relay(receiver, DEADLINE)]))
}

/// After a list of `a@3`, `b@4` and `c@2` at 5, another one is requested, whose first page is `first`. Compares the
/// events after its last page, and the resourceVersion of the next watch.
#[track_caller]
fn check(first: String, then: Vec<Then>, event: &str, watch: &str) {
    let (got, request) = block_on(async {
        let (watches, answers): (Vec<_>, Vec<_>) = (0..3).map(|_| relay()).unzip();
        let mut watches = watches.into_iter();
        let (page, second) = relay();
        let (mut page, mut telling) = (Some(page), watches.next());
        let lists = vec![listed(5, &[("a", 3), ("b", 4), ("c", 2)]), Answer::ok(first), second];
        let mut run = start(lists, answers, patient(), 64).await;
        assert_eq!(run.next().await, "listed@5 a@3 b@4 c@2");
        assert_eq!(run.requests(2).await, ["list", "watch 5"]);
        run.relist.ask();
        let mut requests = 4;
        assert_eq!(run.requests(requests).await[2..], ["list", "list continue=t"], "beside the watch");
        for step in then {
            match step {
                Tells(frame, event) => {
                    telling.as_ref().unwrap().send(frame).unwrap();
                    assert_eq!(run.next().await, event);
                }
                Ends => {
                    telling = watches.next();
                    requests += 1;
                    assert_eq!(run.requests(requests).await.len(), requests);
                }
                Page(text) => page.take().unwrap().send(text).unwrap(),
            }
        }
        let event = run.next().await;
        (event, run.requests(requests + 1).await.split_off(requests).concat())
    });
    assert_eq!((got.as_str(), request.as_str()), (event, watch));
}

fn there(name: &str, version: u32, event: &'static str) -> Then {
    Tells(frame("MODIFIED", &object(name, version)), event)
}

fn gone(name: &str, version: u32, event: &'static str) -> Then {
    Tells(frame("DELETED", &object(name, version)), event)
}

#[test]
fn watch_events_during_a_list_are_neither_lost_nor_undone() {
    let first = |version| page(version, &[("a", 3), ("b", 4)], "t");
    let second = |version| Page(page(version, &[("c", 2)], ""));
    // No event during the list: it is like any other list.
    check(first(6), vec![second(6)], "listed@6 a@3 b@4 c@2", "watch 6");
    // An event about an object of a received page, and one of a later page.
    check(first(6), vec![there("a", 7, "applied a@7"), second(6)], "listed@6 b@4 c@2 a@7", "watch 7");
    check(first(6), vec![gone("a", 7, "deleted a@7"), second(6)], "listed@6 b@4 c@2", "watch 7");
    check(first(6), vec![there("c", 7, "applied c@7"), second(6)], "listed@6 a@3 b@4 c@7", "watch 7");
    check(first(6), vec![gone("c", 7, "deleted c@7"), second(6)], "listed@6 a@3 b@4", "watch 7");
    // An object that the list does not have.
    check(first(6), vec![there("d", 7, "applied d@7"), second(6)], "listed@6 a@3 b@4 c@2 d@7", "watch 7");
    check(
        first(6),
        vec![gone("a", 7, "deleted a@7"), there("a", 8, "applied a@8"), second(6)],
        "listed@6 b@4 c@2 a@8",
        "watch 8",
    );
    check(
        first(6),
        vec![there("d", 7, "applied d@7"), gone("d", 8, "deleted d@8"), second(6)],
        "listed@6 a@3 b@4 c@2",
        "watch 8",
    );
}

#[test]
fn a_watch_behind_the_list_resumes_at_the_version_of_the_list() {
    // The list includes both changes of `a`, and the watch has sent the first: no older state follows.
    check(
        page(9, &[("a", 8), ("b", 4)], "t"),
        vec![there("a", 7, "applied a@7"), Page(page(9, &[("c", 2)], ""))],
        "listed@9 a@8 b@4 c@2",
        "watch 9",
    );
    let bookmark = frame("BOOKMARK", r#"{"metadata":{"resourceVersion":"8"}}"#);
    check(
        page(9, &[("a", 3), ("b", 4)], "t"),
        vec![Tells(bookmark, "bookmark@8"), Page(page(9, &[("c", 2)], ""))],
        "listed@9 a@3 b@4 c@2",
        "watch 9",
    );
}

#[test]
fn the_next_watch_resumes_at_a_bookmark_newer_than_the_list() {
    let bookmark = frame("BOOKMARK", r#"{"metadata":{"resourceVersion":"8"}}"#);
    check(
        page(7, &[("a", 3), ("b", 4)], "t"),
        vec![Tells(bookmark, "bookmark@8"), Page(page(7, &[("c", 2)], ""))],
        "listed@7 a@3 b@4 c@2",
        "watch 8",
    );
}

#[test]
fn a_list_survives_the_end_of_the_watch() {
    check(
        page(6, &[("a", 3), ("b", 4)], "t"),
        vec![there("a", 7, "applied a@7"), Ends, gone("b", 8, "deleted b@8"), Page(page(6, &[("c", 2)], ""))],
        "listed@6 c@2 a@7",
        "watch 8",
    );
}

/// Lists that fail while a watch sends `b@6`: the collection does not fail, and the watch is not opened again.
#[track_caller]
fn check_failing(limits: Limits, failing: Vec<Answer>, counted: &str) {
    block_on(async {
        let (telling, watch) = relay();
        let (again, lists) = (failing.len(), [listed(5, &[("a", 3)])].into_iter().chain(failing));
        let mut run = start(lists.chain([listed(9, &[("c", 8)])]).collect(), vec![watch], limits, 64).await;
        assert_eq!(run.next().await, "listed@5 a@3");
        assert_eq!(run.requests(2).await, ["list", "watch 5"]);
        run.relist.ask();
        assert_eq!(run.requests(3).await.len(), 3);
        telling.send(frame("ADDED", &object("b", 6))).unwrap();
        assert_eq!(run.next().await, "applied b@6", "while the list is made");
        // An event during a failed attempt does not override the next list, which is newer.
        assert_eq!(run.next().await, "listed@9 c@8");
        let requests = [vec!["list", "watch 5"], vec!["list"; again + 1], vec!["watch 9"]].concat();
        assert_eq!(run.requests(requests.len()).await, requests);
        assert_eq!(run.count("tidegate_list_failures_total", counted), again as f64);
        let begun = ["start", "requested", "retry"].map(|why| run.count("tidegate_lists_total", why));
        assert_eq!(begun, [1.0, 1.0, again as f64]);
        assert_eq!(run.count("tidegate_watch_restarts_total", "relisted"), 1.0);
    });
}

#[test]
fn a_failed_list_does_not_end_the_watch() {
    let limits = || Limits { backoff_first: MS(100), backoff_max: MS(100), ..patient() };
    for (code, label) in [(403, "403"), (410, "410"), (429, "429"), (500, "500"), (503, "503")] {
        let refused = || Answer::status(code).with("retry-after", "1");
        check_failing(limits(), vec![refused()], &format!("status-{label}"));
    }
    let mute = Limits { headers: MS(400), ..limits() };
    check_failing(mute, vec![Answer::Mute, Answer::Mute], "no-headers");
    let stalls = || Answer::steps(vec![Step::Send("{".to_owned()), Step::Hang]);
    check_failing(Limits { list_stall: MS(400), ..limits() }, vec![stalls()], "stalled");
    let cut = Answer::steps(vec![Step::Pause(MS(300)), Step::Cut]);
    check_failing(limits(), vec![cut], "broken");
}

#[test]
fn only_an_expired_watch_restarts_the_concurrent_list() {
    block_on(async {
        let (telling, watch) = relay();
        let lists =
            vec![listed(5, &[("a", 3)]), Answer::ok(page(6, &[("a", 3)], "t")), Answer::steps(vec![Step::Hang])];
        let lists = lists.into_iter().chain([listed(9, &[("b", 8)])]).collect();
        let mut run = start(lists, vec![watch], patient(), 64).await;
        assert_eq!(run.next().await, "listed@5 a@3");
        assert_eq!(run.requests(2).await, ["list", "watch 5"]);
        run.relist.ask();
        assert_eq!(run.requests(4).await[2..], ["list", "list continue=t"]);
        telling.send(frame("ERROR", r#"{"kind":"Status","code":410,"message":"as told"}"#)).unwrap();
        assert_eq!(run.next().await, "listed@9 b@8");
        assert_eq!(run.requests(6).await[4..], ["list", "watch 9"]);
        assert_eq!(run.count("tidegate_lists_total", "expired"), 1.0);
    });
}

#[test]
fn a_requested_list_is_made_once_and_at_once() {
    block_on(async {
        let lists = vec![listed(5, &[("a", 3)]), listed(9, &[("b", 8)])];
        let mut run = start(lists, vec![], patient(), 64).await;
        assert_eq!(run.next().await, "listed@5 a@3");
        assert_eq!(run.requests(2).await, ["list", "watch 5"]);
        run.relist.ask();
        run.relist.ask();
        assert_eq!(run.next().await, "listed@9 b@8");
        assert_eq!(run.requests(4).await, ["list", "watch 5", "list", "watch 9"]);
        assert_eq!(
            (run.count("tidegate_lists_total", "requested"), run.count("tidegate_watch_restarts_total", "relisted")),
            (1.0, 1.0)
        );
    });
}

#[test]
fn a_request_is_satisfied_by_any_later_list() {
    block_on(async {
        let limits = Limits { retry_after_max: MS(300), ..patient() };
        let refused = Answer::status(429).with("retry-after", "1");
        let mut run = start(vec![refused, listed(5, &[("a", 3)])], vec![], limits, 64).await;
        assert!(run.next().await.starts_with("failing"));
        run.relist.ask();
        assert_eq!(run.next().await, "listed@5 a@3");
        assert_eq!(run.requests(3).await, ["list", "list", "watch 5"]);
    });
}

#[test]
fn a_due_list_is_made_whatever_the_state_of_the_watch() {
    let refused = || (0..100).map(|_| Answer::status(503)).collect();
    let short = || (0..100).map(|_| Answer::steps(vec![Step::Pause(MS(20))])).collect();
    let cut = || (0..100).map(|_| Answer::steps(vec![Step::Send(String::new()), Step::Cut])).collect();
    for (watches, said) in [
        (vec![], vec![]),
        (vec![Answer::Mute], vec![]),
        (refused(), vec!["failing: *"]),
        (short(), vec![]),
        (cut(), vec!["failing: *"]),
    ] {
        let watches: Vec<Answer> = watches;
        let events = [vec!["listed@5 a@3"], said, vec!["*"]].concat();
        let limits = Limits { relist_interval: MS(200), ..patient() };
        let found = block_on(async {
            let mut run = start(vec![listed(5, &[("a", 3)]), listed(9, &[("b", 8)])], watches, limits, 256).await;
            let mut found = Vec::new();
            while found.last().is_none_or(|event| event != "listed@9 b@8") {
                found.push(run.next().await);
            }
            assert_eq!(run.count("tidegate_lists_total", "periodic"), 1.0);
            found
        });
        assert!(matches(&found[..events.len() - 1], &events[..events.len() - 1]), "{found:#?}");
    }
}

#[test]
fn a_list_is_made_for_a_copy_that_lacks_objects() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tidegate_control::{Copies, CopyEvent, CopyState, CopySubscriber};

    let lists = block_on(async {
        let done = Arc::new(AtomicU32::new(0));
        let copies = Copies::to(move |_: &Collection| {
            let done = Arc::clone(&done);
            CopySubscriber::new(move |copied| {
                // The first two lists do not satisfy it.
                let ends = u32::from(matches!(copied, CopyEvent::ListDone { .. }));
                if done.fetch_add(ends, Ordering::Relaxed) + ends < 3 { CopyState::Lacking } else { CopyState::Whole }
            })
        });
        let lists = (5..10).map(|version| listed(version, &[("a", 3)])).collect();
        let watches = (0..5).map(|_| Answer::steps(vec![Step::Hang])).collect();
        let limits = Limits { list_lacking: MS(20)..=MS(40), ..patient() };
        let mut run = begin(lists, watches, limits, 64, |informer| informer.copying(Some(copies))).await;
        for version in 5..8 {
            assert_eq!(run.next().await, format!("listed@{version} a@3"));
        }
        tokio::time::sleep(MS(300)).await;
        run.count("tidegate_lists_total", "missing-objects")
    });
    assert!((lists - 2.0).abs() < f64::EPSILON, "{lists}");
}
