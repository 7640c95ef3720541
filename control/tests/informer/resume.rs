//! A watch that goes on from a resourceVersion of an earlier life of the process.

use super::*;

fn expired() -> String {
    frame("ERROR", r#"{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}"#)
}

/// The events and requests of an informer that resumes at 5. A list is `b@8` at 9.
#[track_caller]
fn resumes(watches: Vec<Answer>, events: &[&str], requests: &[&str]) {
    let (found, asked) = block_on(async {
        let limits = Limits { short_watch: MS(100), ..patient() };
        let lists = vec![listed(9, &[("b", 8)])];
        let mut run = begin(lists, watches, limits, 64, |informer| informer.resuming("5".into())).await;
        let mut found = Vec::new();
        for _ in events {
            found.push(run.next().await);
        }
        let asked = run.requests(requests.len()).await;
        (found, asked)
    });
    assert!(matches(&found, events), "events: {found:#?}\nexpected: {events:#?}");
    assert!(matches(&asked, requests), "requests: {asked:#?}\nexpected: {requests:#?}");
}

#[test]
fn a_silent_watch_goes_on_from_the_kept_version_without_a_list() {
    resumes(vec![watching(&[])], &["resumed@5"], &["watch 5"]);
}

#[test]
fn what_happened_meanwhile_comes_before_it_counts_as_resumed() {
    let frames = [frame("MODIFIED", &object("a", 7)), frame("DELETED", &object("b", 9))];
    resumes(vec![watching(&frames)], &["applied a@7", "deleted b@9", "resumed@9"], &["watch 5"]);
}

#[test]
fn a_bookmark_says_that_nothing_older_is_left() {
    let bookmark = frame("BOOKMARK", r#"{"metadata":{"resourceVersion":"6"}}"#);
    resumes(vec![watching(&[bookmark])], &["bookmark@6", "resumed@6"], &["watch 5"]);
}

#[test]
fn a_version_that_is_too_old_is_followed_by_one_list() {
    let event = Answer::ok(expired());
    resumes(vec![event, watching(&[])], &["listed@9 b@8"], &["watch 5", "list", "watch 9"]);
    resumes(vec![Answer::status(410), watching(&[])], &["listed@9 b@8"], &["watch 5", "list", "watch 9"]);
}

#[test]
fn a_version_that_the_server_has_not_reached_is_followed_by_one_list() {
    resumes(vec![Answer::status(504), watching(&[])], &["failing*", "listed@9 b@8"], &["watch 5", "list", "watch 9"]);
}

#[test]
fn a_server_that_is_away_is_tried_again_from_the_same_version() {
    resumes(
        vec![Answer::HangUp, Answer::status(503), watching(&[])],
        &["failing*", "failing*", "watching", "resumed@5"],
        &["watch 5", "watch 5", "watch 5"],
    );
}
