//! A custom kind that is created and deleted: the effect of its definition, and of failures.

use std::collections::VecDeque;

use super::*;

/// The server's script: answers for the definition, and for the collection.
struct Script {
    definitions: (Vec<Answer>, Vec<Answer>),
    collection: (Vec<Answer>, Vec<Answer>),
}

/// Plays a script and compares the first events, and all requests except those after the last of them. `v1` and `v2`
/// are understood, `v2` is preferred.
#[track_caller]
fn check(script: Script, events: &[&str], requests: &[&str]) {
    let (got, seen) = block_on(play(script, events.len(), requests.len()));
    assert!(matches(&got, events), "events: {got:#?}\nexpected: {events:#?}");
    assert!(matches(&seen, requests), "requests: {seen:#?}\nexpected: {requests:#?}");
}

async fn play(script: Script, events: usize, requests: usize) -> (Vec<String>, Vec<String>) {
    play_within(patient(), script, events, requests).await
}

async fn play_within(limits: Limits, script: Script, events: usize, requests: usize) -> (Vec<String>, Vec<String>) {
    play_as(limits, script, (events, requests), false).await
}

async fn play_as(
    limits: Limits,
    script: Script,
    (events, requests): (usize, usize),
    optional: bool,
) -> (Vec<String>, Vec<String>) {
    let queues = |(lists, watches): (Vec<Answer>, Vec<Answer>)| [lists, watches].map(VecDeque::from);
    let (mut definitions, mut collection) = (queues(script.definitions), queues(script.collection));
    let decide = move |seen: &Seen, _: &http::HeaderMap| {
        let queues = if of_definition(seen) { &mut definitions } else { &mut collection };
        let next = queues[usize::from(seen.is_watch())].pop_front();
        next.unwrap_or_else(|| Answer::steps(vec![Step::Hang]))
    };
    let api = FakeApi::start(Box::new(decide), None).await;
    let client = connect(
        &Access::of(&Following::new().unwrap(), "test", kube::Config::new(api.url.parse().unwrap())).unwrap(),
        Deadlines::WATCH,
        &ApiServer::default(),
    )
    .unwrap();
    let (sender, mut received) = mpsc::channel(64);
    let metrics = CollectionMetrics::register(&Registry::new()).unwrap();
    let resource = Resource { group: "test.tidegate.io".into(), version: "v1".into(), plural: "tides".into() };
    let collection = Collection { kind: Kind::Service, namespace: None };
    let interest = Interest { resource, ..Interest::in_all_of(collection) };
    let informer = Informer::new(client, interest, limits, sender, &metrics, 7);
    let stop = CancellationToken::new();
    let _stopped = stop.clone().drop_guard();
    tokio::spawn(informer.while_served(["v2".into(), "v1".into()]).optional(optional).run(stop));

    let mut got = Vec::new();
    for _ in 0..events {
        let event = tokio::time::timeout(DEADLINE, received.recv()).await;
        match event {
            Ok(Some(event)) => got.push(text(&event)),
            Ok(None) | Err(_) => break,
        }
    }
    let begun = tokio::time::Instant::now();
    while api.seen().await.len() < requests && begun.elapsed() < DEADLINE {
        tokio::time::sleep(MS(5)).await;
    }
    // Unexpected requests would follow soon.
    tokio::time::sleep(MS(100)).await;
    got.extend(received.try_recv().iter().map(text));
    (got, api.seen().await.iter().map(request).collect())
}

fn of_definition(seen: &Seen) -> bool {
    seen.path == "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
}

fn request(seen: &Seen) -> String {
    let what = request_text(seen);
    if of_definition(seen) {
        assert_eq!(seen.query["fieldSelector"].replace("%3D", "="), "metadata.name=tides.test.tidegate.io");
        return format!("definition {what}");
    }
    let version = seen.path.strip_prefix("/apis/test.tidegate.io/").and_then(|path| path.strip_suffix("/tides"));
    format!("{} {what}", version.unwrap_or_else(|| panic!("{}", seen.path)))
}

/// A definition with this name, uid and served versions, separated by spaces; versions behind a minus are not served.
fn definition(name: &str, uid: &str, version: u32, versions: &str, established: bool) -> String {
    let versions: Vec<String> = versions
        .split_whitespace()
        .map(|name| format!(r#"{{"name":"{}","served":{}}}"#, name.trim_start_matches('-'), !name.starts_with('-')))
        .collect();
    format!(
        r#"{{"metadata":{{"name":"{name}","uid":"{uid}","resourceVersion":"{version}"}},"spec":{{"versions":[{}]}},"status":{{"conditions":[{{"type":"NamesAccepted","status":"True"}},{{"type":"Established","status":"{}"}}]}}}}"#,
        versions.join(","),
        if established { "True" } else { "False" }
    )
}

fn ours(version: u32, versions: &str) -> String {
    definition("tides.test.tidegate.io", "1", version, versions, true)
}

fn defined(version: u32, definitions: &[String]) -> Answer {
    let items = definitions.join(",");
    Answer::ok(format!(r#"{{"metadata":{{"resourceVersion":"{version}"}},"items":[{items}]}}"#))
}

/// A watch that sends these frames with a pause before each, and then stays open.
fn slowly(frames: &[String]) -> Answer {
    let steps = frames.iter().flat_map(|frame| [Step::Pause(MS(300)), Step::Send(frame.clone())]);
    Answer::steps(steps.chain([Step::Hang]).collect())
}

fn gone(version: u32) -> Answer {
    slowly(&[frame("DELETED", &ours(version, "v1"))])
}

#[test]
fn an_undefined_kind_is_not_requested() {
    let script = Script { definitions: (vec![defined(5, &[])], vec![]), collection: (vec![], vec![]) };
    check(script, &["unserved"], &["definition list", "definition watch 5"]);
    // A server that does not support field selectors.
    let other = definition("waves.test.tidegate.io", "2", 4, "v1", true);
    let script = Script { definitions: (vec![defined(5, &[other])], vec![]), collection: (vec![], vec![]) };
    check(script, &["unserved"], &["definition list", "definition watch 5"]);
    let script = Script { definitions: (vec![defined(5, &[ours(4, "-v1 v3")])], vec![]), collection: (vec![], vec![]) };
    check(script, &["unserved"], &["definition list", "definition watch 5"]);
}

#[test]
fn an_unestablished_definition_changes_nothing() {
    let young = |version| definition("tides.test.tidegate.io", "1", version, "v1", false);
    let script = Script { definitions: (vec![defined(5, &[young(4)])], vec![]), collection: (vec![], vec![]) };
    check(script, &["unserved"], &["definition list", "definition watch 5"]);

    let script = Script {
        definitions: (vec![defined(5, &[ours(4, "v1")])], vec![slowly(&[frame("MODIFIED", &young(9))])]),
        collection: (vec![listed(7, &[("a", 1)])], vec![slowly(&["".to_owned(), frame("ADDED", &object("b", 8))])]),
    };
    let (events, seen) = block_on(play(script, 2, 4));
    assert_eq!(events, ["listed@7 a@1", "applied b@8"]);
    assert_eq!(seen.len(), 4, "{seen:?}");
}

#[test]
fn a_kind_is_followed_once_its_definition_is_established() {
    let script = Script {
        definitions: (vec![defined(5, &[ours(4, "v1")])], vec![]),
        collection: (vec![listed(7, &[("a", 1)])], vec![watching(&[frame("ADDED", &object("b", 8))])]),
    };
    let requests = ["definition list", "definition watch 5", "v1 list", "v1 watch 7"];
    let (events, mut seen) = block_on(play(script, 2, requests.len()));
    assert_eq!(events, ["listed@7 a@1", "applied b@8"]);
    seen.sort();
    assert_eq!(seen, requests, "in whatever order");

    let young = definition("tides.test.tidegate.io", "1", 6, "v1", false);
    let frames = [frame("ADDED", &young), frame("MODIFIED", &ours(7, "v1"))];
    let script = Script {
        definitions: (vec![defined(5, &[])], vec![slowly(&frames)]),
        collection: (vec![listed(8, &[])], vec![]),
    };
    let requests = ["definition list", "definition watch 5", "v1 list", "v1 watch 8"];
    check(script, &["unserved", "unlisted", "listed@8"], &requests);
}

#[test]
fn a_removed_kind_is_reported_after_its_earlier_events() {
    let script = Script {
        definitions: (vec![defined(5, &[ours(4, "v1")])], vec![gone(9)]),
        collection: (vec![listed(7, &[("a", 1)])], vec![]),
    };
    let (events, _) = block_on(play(script, 2, 4));
    assert_eq!(events, ["listed@7 a@1", "unserved"]);

    let none_left = slowly(&[frame("MODIFIED", &ours(9, "-v1 -v2 v3"))]);
    let script = Script {
        definitions: (vec![defined(5, &[ours(4, "v1")])], vec![none_left]),
        collection: (vec![listed(7, &[("a", 1)])], vec![]),
    };
    let (events, _) = block_on(play(script, 2, 4));
    assert_eq!(events, ["listed@7 a@1", "unserved"]);
}

#[test]
fn a_list_without_the_definition_must_be_confirmed() {
    let forgotten = || slowly(&[frame("ERROR", r#"{"code":410,"message":"as told"}"#)]);
    let there = || defined(5, &[ours(4, "v1")]);
    let collection = || (vec![listed(7, &[("a", 1)])], vec![]);
    let lists = vec![there(), defined(9, &[]), defined(10, &[])];
    let script = Script { definitions: (lists, vec![forgotten()]), collection: collection() };
    let (events, seen) = block_on(play(script, 2, 7));
    assert_eq!(events, ["listed@7 a@1", "unserved"]);
    assert_eq!(seen.iter().filter(|request| *request == "definition list").count(), 3);
    assert!(seen.contains(&"definition watch 10".to_owned()), "{seen:?}");

    // The second list names it again: nothing has happened, and its objects are followed as before.
    let lists = vec![there(), defined(9, &[]), defined(10, &[ours(4, "v1")])];
    let script = Script { definitions: (lists, vec![forgotten()]), collection: collection() };
    let (events, seen) = block_on(play(script, 1, 7));
    assert_eq!(events, ["listed@7 a@1"]);
    assert_eq!(seen.iter().filter(|request| *request == "v1 list").count(), 1, "{seen:?}");
}

#[test]
fn a_periodic_list_finds_changes_that_the_watch_missed() {
    let silent = || Answer::steps(vec![Step::Pause(MS(300))]);
    let there = |version| defined(version, &[ours(4, "v1")]);
    let moved = defined(9, &[ours(8, "-v1 v2")]);
    for (what, lists, events, lists_made) in [
        ("it came", vec![defined(5, &[]), there(9)], &["unserved", "unlisted", "listed@7 a@1"][..], 2),
        (
            "it went, as two lists say",
            vec![there(5), defined(9, &[]), defined(10, &[])],
            &["listed@7 a@1", "unserved"],
            3,
        ),
        ("its versions changed", vec![there(5), moved], &["listed@7 a@1", "listed@8 a@1"], 2),
    ] {
        // The second list is due as well, and still in progress.
        let hangs = Answer::steps(vec![Step::Hang]);
        let collection = (vec![listed(7, &[("a", 1)]), hangs, listed(8, &[("a", 1)])], vec![]);
        let limits = Limits { relist_interval: Duration::ZERO, ..patient() };
        let script = Script { definitions: (lists, vec![silent()]), collection };
        let (got, seen) = block_on(play_within(limits, script, events.len(), 4));
        assert_eq!(got, events, "{what}");
        assert_eq!(seen.iter().filter(|request| *request == "definition list").count(), lists_made, "{what}: {seen:?}");
    }
}

#[test]
fn a_definition_is_listed_when_due_however_its_watch_ended() {
    let cut = || Answer::steps(vec![Step::Pause(MS(20)), Step::Cut]);
    for watch in [|| Answer::ok(""), cut, || Answer::status(503)] {
        for (relist_interval, then) in [(Duration::ZERO, "definition list"), (MS(60_000), "definition watch 5")] {
            let limits = Limits { relist_interval, ..patient() };
            let script = Script { definitions: (vec![defined(5, &[])], vec![watch()]), collection: (vec![], vec![]) };
            let (_, seen) = block_on(play_within(limits, script, 1, 3));
            assert_eq!(seen, ["definition list", "definition watch 5", then]);
        }
    }
}

#[test]
fn a_failed_periodic_list_does_not_end_the_watch() {
    let silent = |_| Answer::steps(vec![Step::Pause(MS(20))]);
    for failed in [|| Answer::status(429), || Answer::status(500), || Answer::HangUp, || Answer::ok("<html>")] {
        // Every periodic list fails, and each time the watch is resumed and finally reports the deletion.
        let lists = [defined(5, &[ours(4, "v1")])].into_iter().chain((0..2).map(|_| failed())).collect();
        let watches = (0..2).map(silent).chain([gone(9)]).collect();
        let hangs = Answer::steps(vec![Step::Hang]);
        let script =
            Script { definitions: (lists, watches), collection: (vec![listed(7, &[("a", 1)]), hangs], vec![]) };
        let limits = Limits { relist_interval: Duration::ZERO, ..patient() };
        let (events, seen) = block_on(play_within(limits, script, 2, 7));
        assert_eq!(events, ["listed@7 a@1", "unserved"]);
        let requests: Vec<&String> = seen.iter().filter(|request| request.starts_with("definition")).collect();
        let [list, watch] = ["definition list", "definition watch 5"];
        assert_eq!(requests, [list, watch, list, watch, list, watch], "and the last lasts");
    }
}

#[test]
fn an_unreadable_definition_removes_nothing() {
    let forgotten = slowly(&[frame("ERROR", r#"{"code":410,"message":"as told"}"#)]);
    let broken = [404, 403, 500, 429, 401].map(Answer::status);
    let no_lists = [Answer::ok("<html>"), Answer::ok(r#"{"metadata":{},"items":[]}"#), Answer::HangUp];
    let odd = Answer::ok(r#"{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{}}]}"#);
    let lists = [defined(5, &[ours(4, "v1")])].into_iter().chain(broken).chain(no_lists).chain([odd]);
    let script = Script {
        definitions: (lists.chain([defined(9, &[ours(4, "v1")])]).collect(), vec![forgotten]),
        collection: (vec![listed(7, &[("a", 1)])], vec![Answer::steps(vec![Step::Hang])]),
    };
    let (events, seen) = block_on(play(script, 1, 15));
    assert_eq!(events, ["listed@7 a@1"]);
    assert!(seen.contains(&"definition watch 9".to_owned()), "all of them were tried: {seen:?}");
    assert_eq!(seen.iter().filter(|request| *request == "v1 list").count(), 1, "{seen:?}");
}

#[test]
fn an_unknown_definition_is_reported_as_failing() {
    let script = Script {
        definitions: (vec![Answer::status(403), Answer::status(403), defined(5, &[])], vec![]),
        collection: (vec![], vec![]),
    };
    let events = ["failing: its definition: the API server answered 403: as told", "watching", "unserved"];
    check(script, &events, &["definition list", "definition list", "definition list", "definition watch 5"]);
}

#[test]
fn a_collection_that_answers_404_goes_only_with_its_definition() {
    let script = Script {
        definitions: (vec![defined(5, &[ours(4, "v1")])], vec![]),
        collection: (vec![Answer::status(404), listed(7, &[("a", 1)])], vec![]),
    };
    let (events, _) = block_on(play(script, 3, 5));
    assert_eq!(events, ["failing: the API server answered 404: as told", "listed@7 a@1", "watching"]);
}

#[test]
fn a_better_version_or_a_new_definition_causes_a_list() {
    for (frames, version) in [
        (vec![frame("MODIFIED", &ours(9, "v1 v2"))], "v2"),
        (vec![frame("MODIFIED", &ours(9, "-v1 v2"))], "v2"),
        // Faster than a watch could observe the deletion.
        (
            vec![
                frame("DELETED", &ours(8, "v1"))
                    + &frame("ADDED", &definition("tides.test.tidegate.io", "2", 9, "v1", true)),
            ],
            "v1",
        ),
    ] {
        let script = Script {
            definitions: (vec![defined(5, &[ours(4, "v1")])], vec![slowly(&frames)]),
            collection: (vec![listed(7, &[("a", 1)]), listed(9, &[("a", 1)])], vec![]),
        };
        let (events, seen) = block_on(play(script, 2, 6));
        assert_eq!(events, ["listed@7 a@1", "listed@9 a@1"], "{frames:?}");
        let lists: Vec<&String> = seen.iter().filter(|request| request.ends_with("list")).collect();
        assert_eq!(lists, ["definition list", "v1 list", &format!("{version} list")], "{frames:?}");
    }
}

#[test]
fn a_failure_of_one_version_ends_with_the_next() {
    let refused = Answer::status(429).with("retry-after", "60");
    let script = Script {
        definitions: (vec![defined(5, &[ours(4, "v1")])], vec![slowly(&[frame("MODIFIED", &ours(9, "-v1 v2"))])]),
        collection: (vec![listed(7, &[("a", 1)]), listed(9, &[("a", 1)])], vec![refused]),
    };
    let requests = ["definition list", "definition watch 5", "v1 list", "v1 watch 7", "v2 list", "v2 watch 9"];
    let events = ["listed@7 a@1", "failing: the API server answered 429: *", "listed@9 a@1", "watching"];
    let (got, mut seen) = block_on(play(script, events.len(), requests.len()));
    assert!(matches(&got, &events), "{got:#?}");
    seen.sort();
    let mut requests = requests.map(str::to_owned);
    requests.sort();
    assert_eq!(seen, requests);
}

#[test]
fn an_optional_kind_with_an_unreadable_definition_is_neither_awaited_nor_gone() {
    let script = Script {
        definitions: (vec![Answer::status(403), Answer::status(403), defined(5, &[ours(4, "v1")])], vec![]),
        collection: (vec![listed(7, &[("a", 1)])], vec![]),
    };
    let (got, _) = block_on(play_as(patient(), script, (3, 4), true));
    let events = ["unreadable: its definition: the API server answered 403: as told", "watching", "listed@7 a@1"];
    assert!(matches(&got, &events), "events: {got:#?}");
}
