//! Lists: their events, and that a failed or incomplete list is no event.

use super::*;

const ONE: &[(&str, u32)] = &[("a", 3)];

/// A list that fails once and then succeeds: the failure is reported and counted, and nothing of the first attempt is
/// used.
#[track_caller]
fn fails_once(limits: Limits, answer: Answer, failing: &str, counted: &str) {
    check(
        limits,
        vec![answer, listed(5, ONE)],
        vec![],
        &Expect {
            events: &[failing, "listed@5 a@3"],
            requests: &["list", "list*", "watch 5"],
            counted: &[counted, "why:start", "why:retry"],
        },
    );
}

#[test]
fn a_list_of_three_pages_is_one_event() {
    check(
        patient(),
        vec![
            Answer::ok(page(5, &[("a", 1), ("b", 2)], "t1")),
            Answer::ok(page(5, &[("c", 3)], "t2")),
            listed(5, &[("d", 4)]),
        ],
        vec![],
        &Expect {
            events: &["listed@5 a@1 b@2 c@3 d@4"],
            requests: &["list", "list continue=t1", "list continue=t2", "watch 5"],
            counted: &["why:start"],
        },
    );
}

#[test]
fn an_expired_continue_token_restarts_the_list() {
    check(
        patient(),
        vec![Answer::ok(page(5, &[("a", 1)], "t1")), Answer::status(410), listed(9, &[("b", 8)])],
        vec![],
        &Expect {
            events: &["listed@9 b@8"],
            requests: &["list", "list continue=t1", "list", "watch 9"],
            counted: &["list:status-410"],
        },
    );
}

#[test]
fn refused_lists_are_reported_and_retried() {
    for (code, label) in [(401, "401"), (403, "403"), (404, "404"), (429, "429"), (500, "500"), (503, "503")] {
        let failing = format!("failing: the API server answered {code}: as told");
        fails_once(patient(), Answer::status(code), &failing, &format!("list:status-{label}"));
    }
}

#[test]
fn a_server_that_sends_no_headers_is_given_up() {
    let limits = Limits { headers: MS(200), ..patient() };
    fails_once(limits, Answer::Mute, "failing: no answer in time", "list:no-headers");
}

#[test]
fn a_stalled_body_is_given_up() {
    let limits = Limits { list_stall: MS(200), ..patient() };
    let half = page(5, &[("x", 1), ("y", 2)], "").split_off(0)[..80].to_owned();
    let answer = Answer::steps(vec![Step::Send(half), Step::Hang]);
    fails_once(limits, answer, "failing: the response stalled", "list:stalled");
}

#[test]
fn a_truncated_body_is_not_a_list() {
    let half = page(5, &[("x", 1), ("y", 2)], "")[..80].to_owned();
    let cut = Answer::steps(vec![Step::Send(half.clone()), Step::Cut]);
    fails_once(patient(), cut, "failing: connection: *", "list:broken");
    fails_once(
        patient(),
        Answer::ok(half),
        "failing: the response cannot be read: not a list at line 1*",
        "list:unreadable",
    );
}

#[test]
fn an_unreadable_list_removes_nothing() {
    let unreadable = |body: &str| {
        fails_once(patient(), Answer::ok(body), "failing: the response cannot be read: *", "list:unreadable");
    };
    unreadable("<html>sign in</html>");
    unreadable("{}");
    unreadable(r#"{"kind":"Status","metadata":{"resourceVersion":"5"},"status":"Success"}"#);
    unreadable(r#"{"kind":"ServiceList","metadata":{},"items":[]}"#);
    unreadable("");
}

#[test]
fn a_page_beyond_the_limit_is_requested_in_halves() {
    let limits = Limits { page_objects: 4, page_bytes_max: 400, ..patient() };
    check(
        limits,
        vec![
            listed(5, &[("a", 1), ("b", 2), ("c", 3), ("d", 4)]),
            Answer::ok(page(5, &[("a", 1), ("b", 2)], "t")),
            listed(5, &[("c", 3), ("d", 4)]),
        ],
        vec![],
        &Expect {
            events: &["failing: a page of the list exceeds a size limit", "listed@5 a@1 b@2 c@3 d@4"],
            requests: &["list limit=4", "list limit=2", "list limit=2 continue=t", "watch 5"],
            counted: &["list:page-too-long"],
        },
    );
}

#[test]
fn a_list_with_too_many_pages_is_given_up() {
    let limits = Limits { pages_max: 2, ..patient() };
    check(
        limits,
        vec![Answer::ok(page(5, ONE, "t")), Answer::ok(page(5, ONE, "t")), listed(5, ONE)],
        vec![],
        &Expect {
            events: &["failing: the list has too many pages", "listed@5 a@3"],
            requests: &["list", "list continue=t", "list", "watch 5"],
            counted: &["list:endless"],
        },
    );
}

/// A list of `a` and `d`, an invalid one, and one without an identity.
fn listed_with(unidentified: &str) -> Answer {
    let broken = r#"{"metadata":{"name":"b","namespace":"shop","resourceVersion":"2"},"spec":{"ports":7}}"#;
    let (a, d) = (object("a", 1), object("d", 3));
    Answer::ok(format!(r#"{{"metadata":{{"resourceVersion":"5"}},"items":[{a},{broken},{unidentified},{d}]}}"#))
}

const NAMELESS: &str = r#"{"metadata":{"resourceVersion":"4"},"spec":{}}"#;
const UNVERSIONED: &str = r#"{"metadata":{"name":"c","namespace":"shop"},"spec":{}}"#;

#[test]
fn one_unreadable_item_does_not_hide_the_others() {
    for item in [NAMELESS, UNVERSIONED, "7"] {
        check(
            patient(),
            vec![listed_with(item)],
            vec![],
            &Expect { events: &["listed@5 a@1 b@2! d@3 and more"], requests: &["list", "watch 5"], counted: &[] },
        );
    }
}

#[test]
fn the_metrics_of_a_list_show_its_duration_and_its_unidentified_items() {
    block_on(async {
        let mut run = start(vec![listed_with(NAMELESS)], vec![Answer::Mute], patient(), 64).await;
        assert_eq!(run.next().await, "listed@5 a@1 b@2! d@3 and more");
        let families = run.registry.gather();
        let series = |name: &str| {
            let family = families.iter().find(|family| family.name() == name).unwrap();
            family.get_metric()[0].clone()
        };
        assert_eq!(series("tidegate_list_duration_seconds").get_histogram().get_sample_count(), 1);
        assert!((series("tidegate_unidentified_objects_total").get_counter().get_value() - 1.0).abs() < 0.1);
    });
}

#[test]
fn a_list_with_an_unidentified_item_removes_nothing() {
    let world = block_on(async {
        let collection = Collection { kind: Kind::Service, namespace: Some("shop".into()) };
        let mut reconciler = Reconciler::new(Options::default(), [collection]);
        let lists = vec![listed(4, &[("c", 3)]), listed_with(UNVERSIONED), listed(9, &[("a", 1)])];
        let mut run = start(lists, vec![], patient(), 64).await;
        let mut worlds = Vec::new();
        for _ in 0..3 {
            let event = tokio::time::timeout(DEADLINE, run.events.recv()).await.unwrap().unwrap();
            assert_eq!(reconciler.observe(event, tokio::time::Instant::now().into_std()), None);
            let names =
                reconciler.model().world().names_of(Kind::Service, None).map(|object| object.name.name.to_string());
            worlds.push(names.collect::<Vec<_>>().join(" "));
            run.relist.ask();
        }
        worlds
    });
    assert_eq!(world, ["c", "a b c d", "a"]);
}

#[test]
fn null_items_are_an_empty_list() {
    check(
        patient(),
        vec![Answer::ok(r#"{"metadata":{"resourceVersion":"5"},"items":null}"#)],
        vec![],
        &Expect { events: &["listed@5"], requests: &["list", "watch 5"], counted: &[] },
    );
}

/// Checks the time from a refusal with this `Retry-After` to the next request.
#[track_caller]
fn check_retry_after(answer: Answer, retry_after_max: Duration, expected: std::ops::Range<Duration>) {
    let gap = block_on(async {
        let run = start(vec![answer, listed(5, ONE)], vec![], Limits { retry_after_max, ..patient() }, 64).await;
        run.requests(2).await;
        let seen = run.api.seen().await;
        seen[1].at - seen[0].at
    });
    assert!(expected.contains(&gap), "{gap:?} is not in {expected:?}");
}

#[test]
fn retry_after_is_honoured_within_limits() {
    let after = |seconds| Answer::status(429).with("retry-after", seconds);
    check_retry_after(after("1"), Duration::from_secs(60), MS(1000)..MS(5000));
    check_retry_after(after("3600"), MS(100), MS(100)..MS(5000));
    check_retry_after(after("soon"), Duration::from_secs(60), MS(0)..MS(5000));
    let body = r#"{"kind":"Status","code":504,"details":{"retryAfterSeconds":1}}"#;
    let answer = Answer::Is { status: 504, headers: Vec::new(), body: vec![Step::Send(body.to_owned())] };
    check_retry_after(answer, Duration::from_secs(60), MS(1000)..MS(5000));
}

#[test]
fn a_failure_is_reported_once_until_it_changes() {
    let lists = [403, 403, 403, 500, 500].map(Answer::status).into_iter().chain([listed(5, ONE)]).collect();
    check(
        patient(),
        lists,
        vec![],
        &Expect {
            events: &["failing: the API server answered 403*", "failing: the API server answered 500*", "listed@5 a@3"],
            requests: &["list", "list", "list", "list", "list", "list", "watch 5"],
            counted: &["list:status-403", "list:status-500"],
        },
    );
    let limits = Limits { failing_again: Duration::ZERO, ..patient() };
    check(
        limits,
        vec![Answer::status(403), Answer::status(403), listed(5, ONE)],
        vec![],
        &Expect {
            events: &["failing: the API server answered 403*", "failing: the API server answered 403*", "listed@5 a@3"],
            requests: &[],
            counted: &[],
        },
    );
}

#[test]
fn requests_have_the_documented_parameters() {
    block_on(async {
        let run = start(vec![listed(5, ONE)], vec![], patient(), 64).await;
        run.requests(2).await;
        let seen = run.api.seen().await;
        let path = "/api/v1/namespaces/shop/services";
        assert_eq!((seen[0].path.as_str(), seen[1].path.as_str()), (path, path));
        for request in &seen {
            assert_eq!(request.query["fieldSelector"], "spec.type%3DClusterIP", "{request:?}");
        }
        assert!(!seen[0].query.contains_key("resourceVersion"), "the most recent list, not a cache's");
        assert_eq!(seen[1].query["allowWatchBookmarks"], "true");
        let seconds: u64 = seen[1].query["timeoutSeconds"].parse().unwrap();
        assert!((120..=200).contains(&seconds), "{seconds}");
    });
}
