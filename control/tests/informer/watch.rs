//! Watches: their events, their ends, and the next requests.

use super::*;

fn expired() -> String {
    frame("ERROR", r#"{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}"#)
}

fn bookmark(version: u32) -> String {
    frame("BOOKMARK", &format!(r#"{{"metadata":{{"resourceVersion":"{version}"}}}}"#))
}

/// Compares the events and requests after a list `a@3` at 5. The second list is `b@8` at 9.
#[track_caller]
fn follows(limits: Limits, watches: Vec<Answer>, events: &[&str], requests: &[&str], counted: &[&str]) {
    let events: Vec<_> = ["listed@5 a@3"].iter().chain(events).copied().collect();
    let requests: Vec<_> = ["list", "watch 5"].iter().chain(requests).copied().collect();
    let lists = vec![listed(5, &[("a", 3)]), listed(9, &[("b", 8)])];
    check(limits, lists, watches, &Expect { events: &events, requests: &requests, counted });
}

#[test]
fn changes_come_in_order() {
    let frames = [
        frame("ADDED", &object("b", 6)),
        frame("MODIFIED", &object("a", 7)),
        bookmark(8),
        frame("DELETED", &object("b", 9)),
    ];
    follows(patient(), vec![watching(&frames)], &["applied b@6", "applied a@7", "bookmark@8", "deleted b@9"], &[], &[]);
}

#[test]
fn frames_may_be_cut_anywhere() {
    let all = [frame("ADDED", &object("b", 6)), frame("MODIFIED", &object("a", 7))].concat();
    let (first, rest) = all.split_at(40);
    let (second, third) = rest.split_at(100);
    let steps = [first, second, third].map(|part| Step::Send(part.to_owned()));
    let steps = steps.into_iter().flat_map(|step| [step, Step::Pause(MS(10))]).chain([Step::Hang]).collect();
    follows(patient(), vec![Answer::steps(steps)], &["applied b@6", "applied a@7"], &[], &[]);
}

#[test]
fn the_next_watch_resumes_at_the_last_object_or_bookmark() {
    let told = |frames: &[String]| Answer::ok(frames.concat());
    follows(
        patient(),
        vec![
            told(&[frame("ADDED", &object("b", 6))]),
            told(&[bookmark(7)]),
            told(&[frame("DELETED", &object("b", 8))]),
            told(&[]),
        ],
        &["applied b@6", "bookmark@7", "deleted b@8"],
        &["watch 6", "watch 7", "watch 8", "watch 8"],
        &["watch:ended"],
    );
}

#[test]
fn an_expired_version_causes_a_list_in_either_form() {
    for watch in [Answer::status(410), watching(&[expired()])] {
        follows(patient(), vec![watch], &["listed@9 b@8"], &["list", "watch 9"], &["watch:status-410", "why:expired"]);
    }
}

#[test]
fn refusals_unrelated_to_the_version_are_retried() {
    for code in [401_u16, 403, 429, 500, 503] {
        let failing = format!("failing: the API server answered {code}: *");
        let counted = format!("watch:status-{code}");
        let error = frame("ERROR", &format!(r#"{{"kind":"Status","code":{code},"message":"as told"}}"#));
        for watch in [Answer::status(code), watching(&[error])] {
            follows(patient(), vec![watch], &[&failing], &["watch 5"], &[&counted]);
        }
    }
}

/// An `ERROR` event of a server that cannot read an object of its own.
fn internal() -> String {
    frame("ERROR", r#"{"kind":"Status","code":500,"message":"as told"}"#)
}

#[test]
fn repeated_failures_at_one_version_cause_a_list() {
    let failing = "failing: the API server answered 500: as told";
    // The list is made at once, while the watch waits.
    let last = || Answer::ok(internal().replace(r#""code""#, r#""details":{"retryAfterSeconds":1},"code""#));
    let stuck = || Answer::ok(internal());
    let on = || Answer::ok(frame("ADDED", &object("b", 6)) + &internal());
    // A watch that is open and then fails.
    let [open, over] = ["watching", failing];
    for (watches, events, requests) in [
        (vec![stuck(), stuck(), last()], vec![over, open, over, open, over, "listed@9 b@8", open], "5 5 list 9"),
        // A different failure in between is no progress either.
        (
            vec![stuck(), Answer::status(503), stuck(), Answer::status(500), last()],
            vec![over, "failing: *", open, over, open, over, "listed@9 b@8", open],
            "5 5 5 5 list 9",
        ),
        // Each sent object, and each watch that ends regularly, is progress.
        (
            vec![stuck(), stuck(), on(), stuck(), last()],
            vec![over, open, over, open, "applied b@6", over, open, over, open, over, "listed@9 b@8"],
            "5 5 6 6 list 9",
        ),
        (
            vec![stuck(), stuck(), Answer::ok(""), stuck(), stuck(), last()],
            vec![over, open, over, open, over, open, over, open, over, "listed@9 b@8"],
            "5 5 5 5 5 list 9",
        ),
        // As an HTTP status it means that the server is unavailable.
        (vec![Answer::status(500), Answer::status(500), Answer::status(500)], vec![over, open], "5 5 5"),
    ] {
        let requests: Vec<String> =
            requests.split(' ').map(|it| if it == "list" { it.to_owned() } else { format!("watch {it}") }).collect();
        let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
        follows(patient(), watches, &events, &requests, &["watch:status-500"]);
    }
}

#[test]
fn refusals_of_the_version_cause_a_list() {
    for code in [400_u16, 404, 504] {
        let failing = format!("failing: the API server answered {code}: as told");
        let counted = format!("watch:status-{code}");
        follows(
            patient(),
            vec![Answer::status(code)],
            &[&failing, "listed@9 b@8", "watching"],
            &["list", "watch 9"],
            &[&counted, "why:refused"],
        );
    }
}

#[test]
fn a_collection_fails_until_its_watch_is_open() {
    let failing = "failing: the API server answered 404: as told";
    check(
        patient(),
        vec![Answer::status(404), listed(5, &[]), listed(6, &[]), listed(7, &[])],
        vec![Answer::status(404), Answer::status(404)],
        &Expect {
            events: &[failing, "listed@5", "listed@6", "listed@7", "watching"],
            requests: &["list", "list", "watch 5", "list", "watch 6", "list", "watch 7"],
            counted: &["list:status-404", "watch:status-404"],
        },
    );
}

#[test]
fn a_collection_that_fails_again_is_reported_again() {
    let cut = || Answer::steps(vec![Step::Pause(MS(20)), Step::Cut]);
    let failing = "failing: connection: *";
    follows(patient(), vec![cut(), cut()], &[failing, "watching", failing, "watching"], &["watch 5", "watch 5"], &[]);
}

#[test]
fn a_watch_without_headers_is_given_up() {
    let limits = Limits { headers: MS(200), ..patient() };
    follows(limits, vec![Answer::Mute], &["failing: no answer in time"], &["watch 5"], &["watch:no-headers"]);
}

#[test]
fn a_silent_watch_is_given_up_after_its_timeout() {
    let limits = Limits { watch_timeout: MS(100)..=MS(100), watch_grace: MS(100), ..patient() };
    follows(
        limits,
        vec![watching(&[frame("ADDED", &object("b", 6))])],
        &["applied b@6", "failing: the response stalled"],
        &["watch 6"],
        &["watch:stalled"],
    );
}

#[test]
fn a_connection_cut_inside_a_frame_loses_nothing() {
    let whole = frame("ADDED", &object("b", 6));
    let half = frame("MODIFIED", &object("a", 7))[..30].to_owned();
    follows(
        patient(),
        vec![
            Answer::steps(vec![Step::Send(whole + &half), Step::Cut]),
            watching(&[frame("MODIFIED", &object("a", 7))]),
        ],
        &["applied b@6", "failing: connection: *", "watching", "applied a@7"],
        &["watch 6"],
        &["watch:broken"],
    );
}

#[test]
fn a_body_that_ends_inside_a_frame_loses_nothing() {
    let half = frame("MODIFIED", &object("a", 7))[..30].to_owned();
    follows(
        patient(),
        vec![Answer::ok(half), watching(&[frame("MODIFIED", &object("a", 7))])],
        &["applied a@7"],
        &["watch 5"],
        &["watch:ended"],
    );
}

#[test]
fn a_watch_that_ends_at_once_is_retried_with_back_off() {
    let limits = Limits { short_watch: Duration::from_secs(10), ..patient() };
    let closed = || Answer::ok("");
    follows(
        limits,
        vec![closed(), closed(), closed()],
        &["failing: the API server ended the watch at once"],
        &["watch 5", "watch 5", "watch 5"],
        &["watch:short"],
    );
}

#[test]
fn back_off_grows_while_watches_are_ended_at_once() {
    // With delays of up to 200 ms and more, ten requests in a row take a while; without them, a few milliseconds.
    let limits =
        Limits { short_watch: Duration::from_secs(10), backoff_first: MS(200), backoff_max: MS(200), ..patient() };
    let (first, last) = block_on(async {
        let closed = (0..20).map(|_| Answer::ok("")).collect();
        let run = start(vec![listed(5, &[])], closed, limits, 64).await;
        run.requests(12).await;
        let seen = run.api.seen().await;
        (seen[1].at, seen[11].at)
    });
    assert!(last - first > MS(300), "ten restarts took {:?}", last - first);
}

#[test]
fn only_a_lasting_watch_resets_the_back_off() {
    // Watches that are refused after 20 ms, and lists that succeed between them, with delays that double each time.
    let took = |settled: Duration, watch: fn() -> Answer, requests: usize| {
        block_on(async {
            let watches = (0..8).map(|_| watch()).collect();
            let lists = (5..=13).map(|version| listed(version, &[])).collect();
            let (backoff_first, backoff_max) = (MS(10), MS(5000));
            let limits = Limits { settled, headers: MS(100), backoff_first, backoff_max, ..patient() };
            let run = start(lists, watches, limits, 64).await;
            assert_eq!(run.requests(requests).await.len(), requests);
            let seen = run.api.seen().await;
            seen[requests - 1].at - seen[0].at
        })
    };
    let refused = || {
        let refusal = frame("ERROR", r#"{"kind":"Status","code":400,"message":"as told"}"#);
        Answer::steps(vec![Step::Pause(MS(20)), Step::Send(refusal), Step::Hang])
    };
    let (kept, wiped) = (took(Duration::from_secs(10), refused, 17), took(MS(1), refused, 17));
    assert!(kept > wiped * 2, "{kept:?}, and {wiped:?} with a slate that is wiped");
    let mute = took(MS(50), || Answer::Mute, 9);
    assert!(mute > MS(8 * 100 + 300), "a watch that never opens has not settled, however long that takes: {mute:?}");
}

#[test]
fn an_event_without_an_identity_causes_a_list() {
    let nameless = r#"{"metadata":{"resourceVersion":"6"}}"#;
    let unversioned = r#"{"metadata":{"name":"b","namespace":"shop"}}"#;
    for object in [nameless, unversioned, "7"] {
        for what in ["ADDED", "MODIFIED", "DELETED"] {
            follows(
                patient(),
                vec![watching(&[frame(what, object)])],
                &["failing: an event does not identify its object: *", "listed@9 b@8"],
                &["list", "watch 9"],
                &["watch:unidentified", "why:undecodable"],
            );
        }
    }
}

#[test]
fn an_undecodable_line_causes_a_list() {
    for line in ["no json\n", "{\"type\":\"ADDED\"}\n", "{\"type\":\"MOVED\",\"object\":{}}\n"] {
        follows(
            patient(),
            vec![watching(&[line.to_owned()])],
            &["failing: the response cannot be read: *", "listed@9 b@8"],
            &["list", "watch 9"],
            &["watch:unreadable", "why:undecodable"],
        );
    }
}

#[test]
fn an_invalid_object_is_delivered_with_its_findings() {
    let broken = r#"{"metadata":{"name":"b","namespace":"shop","resourceVersion":"6"},"spec":{"ports":7}}"#;
    follows(
        patient(),
        vec![watching(&[frame("ADDED", broken), bookmark(7)])],
        &["applied b@6!", "bookmark@7"],
        &[],
        &[],
    );
}

#[test]
fn a_bookmark_without_a_version_is_ignored() {
    let frames = [
        frame("BOOKMARK", r#"{"metadata":{}}"#),
        frame("BOOKMARK", r#"{"kind":"Service"}"#),
        frame("BOOKMARK", r#"{"metadata":{"resourceVersion":""}}"#),
        frame("ADDED", &object("b", 6)),
    ];
    follows(patient(), vec![watching(&frames)], &["applied b@6"], &[], &[]);
}

#[test]
fn an_event_beyond_the_size_limit_causes_a_list() {
    let limits = Limits { frame_bytes_max: 300, ..patient() };
    let long = frame("ADDED", &object(&"b".repeat(300), 7));
    follows(
        limits,
        vec![watching(&[frame("ADDED", &object("b", 6)), long])],
        &["applied b@6", "failing: an event is too long", "listed@9 b@8"],
        &["list", "watch 9"],
        &["watch:frame-too-long", "why:undecodable"],
    );
}

#[test]
fn a_repeated_event_is_delivered_twice() {
    let twice = [frame("ADDED", &object("b", 6)), frame("ADDED", &object("b", 6))];
    follows(patient(), vec![watching(&twice)], &["applied b@6", "applied b@6"], &[], &[]);
}

#[test]
fn a_deletion_while_the_watch_was_down_shows_in_the_next_list() {
    // The second list names `b` alone, and no deletion event is synthesised.
    follows(
        patient(),
        vec![Answer::steps(vec![Step::Cut]), Answer::status(410)],
        &["failing: connection: *", "listed@9 b@8"],
        &["watch 5", "list", "watch 9"],
        &["why:expired"],
    );
}

#[test]
fn a_slow_receiver_delays_the_watch_without_ending_it() {
    block_on(async {
        let limits = Limits { watch_timeout: MS(200)..=MS(200), watch_grace: MS(100), ..patient() };
        let frames: Vec<_> = (6..12).map(|version| frame("MODIFIED", &object("a", version))).collect();
        let mut run = start(vec![listed(5, &[])], vec![watching(&frames)], limits, 1).await;
        assert_eq!(run.requests(2).await, ["list", "watch 5"]);
        tokio::time::sleep(MS(900)).await;
        assert_eq!(run.next().await, "listed@5");
        for version in 6..12 {
            assert_eq!(run.next().await, format!("applied a@{version}"));
        }
        assert_eq!(run.api.seen().await.len(), 2, "nothing was asked again");
    });
}

#[test]
fn an_informer_stops_when_cancelled_and_when_its_receiver_is_dropped() {
    block_on(async {
        // Cancelled during a list, a watch, and a back-off.
        for (lists, watches) in [
            (vec![Answer::Mute], vec![]),
            (vec![listed(5, &[])], vec![]),
            (vec![Answer::status(429).with("retry-after", "60")], vec![]),
        ] {
            let run = start(lists, watches, patient(), 64).await;
            run.requests(1).await;
            tokio::time::sleep(MS(50)).await;
            drop(run.stop);
            tokio::time::timeout(DEADLINE, run.task).await.expect("it ends").unwrap();
        }
        let mut run = start(vec![listed(5, &[])], vec![watching(&[bookmark(6)])], patient(), 1).await;
        run.events.close();
        tokio::time::timeout(DEADLINE, run.task).await.expect("it ends").unwrap();
    });
}

#[test]
fn the_connected_gauge_follows_the_watch() {
    block_on(async {
        let gauge = |run: &Run, name: &str| {
            let families = run.registry.gather();
            let family = families.iter().find(|it| it.name() == name).unwrap();
            family.get_metric()[0].get_gauge().get_value()
        };
        let connected = |run: &Run| gauge(run, "tidegate_watch_connected");
        let limits = Limits { headers: MS(200), ..patient() };
        let steps = vec![Step::Send(bookmark(6)), Step::Pause(MS(300)), Step::Cut];
        let mut run = start(vec![listed(5, &[])], vec![Answer::steps(steps), Answer::Mute], limits, 64).await;
        assert_eq!(run.next().await, "listed@5");
        assert_eq!(run.next().await, "bookmark@6");
        assert_eq!(connected(&run), 1.0);
        // Some moment of this century.
        assert!(gauge(&run, "tidegate_watch_last_event_timestamp_seconds") > 1e9);
        assert!(run.next().await.starts_with("failing"));
        assert_eq!(connected(&run), 0.0);
    });
}

/// A Service with an expression, which is projected beside the watch.
fn costly(name: &str, version: u32) -> String {
    let annotations = r#"{"router.deis.io/domains":"a","router.deis.io/regexDomain":"a-[a-z]+"}"#;
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"shop","resourceVersion":"{version}","annotations":{annotations}}}}}"#
    )
}

/// Compares the events after a list `a@3` at 5 while no object with expressions can be projected, and the events after
/// that.
#[track_caller]
fn follows_around(frames: &[String], before: &[&str], after: &[&str]) {
    // The only thread that may project them is occupied.
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let (release, occupied) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || occupied.recv());
        let mut run = start(vec![listed(5, &[("a", 3)])], vec![watching(frames)], patient(), 64).await;
        for event in ["listed@5 a@3"].iter().chain(before) {
            assert_eq!(run.next().await, *event);
        }
        drop(release);
        for event in after {
            assert_eq!(run.next().await, *event);
        }
    });
}

#[test]
fn no_object_waits_for_those_with_expressions() {
    let mut frames: Vec<_> = (0..30).map(|number| frame("ADDED", &costly(&format!("c{number}"), 6 + number))).collect();
    frames.push(frame("ADDED", &object("neighbour", 60)));
    let after: Vec<String> = (0..30).map(|number| format!("applied c{number}@{}", 6 + number)).collect();
    let after: Vec<&str> = after.iter().map(String::as_str).collect();
    follows_around(&frames, &["applied neighbour@60"], &after);
}

#[test]
fn the_last_state_of_an_object_with_expressions_counts() {
    let frames = [
        frame("ADDED", &costly("x", 6)),
        frame("ADDED", &costly("y", 7)),
        frame("ADDED", &costly("z", 8)),
        frame("DELETED", &object("y", 9)),
        frame("MODIFIED", &costly("z", 10)),
        frame("MODIFIED", &object("x", 11)),
        bookmark(12),
    ];
    follows_around(&frames, &["deleted y@9", "applied x@11", "bookmark@12"], &["applied z@10"]);
}

#[test]
fn objects_with_expressions_arrive_before_the_watch_is_opened_again() {
    let frames = [frame("ADDED", &costly("x", 6)), frame("ADDED", &object("b", 7))].concat();
    let ended = vec![Answer::ok(frames), watching(&[frame("ADDED", &object("d", 8))])];
    follows(patient(), ended, &["applied b@7", "applied x@6", "applied d@8"], &["watch 7"], &[]);
}

#[test]
fn listed_objects_with_expressions_are_part_of_the_list() {
    let items = [object("a", 3), costly("x", 4), object("b", 2)].join(",");
    let list = format!(r#"{{"kind":"ServiceList","metadata":{{"resourceVersion":"5"}},"items":[{items}]}}"#);
    check(
        patient(),
        vec![Answer::ok(list)],
        vec![watching(&[])],
        &Expect { events: &["listed@5 a@3 b@2 x@4"], requests: &["list", "watch 5"], counted: &[] },
    );
}
