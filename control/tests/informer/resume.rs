//! A watch that is resumed from a stored resourceVersion.

use super::*;

fn expired() -> String {
    frame("ERROR", r#"{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}"#)
}

/// Compares the events and requests of an informer that resumes at 5, with a server that reports version 6. A list is
/// `b@8` at 9.
#[track_caller]
fn resumes(watches: Vec<Answer>, events: &[&str], requests: &[&str]) {
    let requests: Vec<&str> = ["list limit=1"].iter().chain(requests).copied().collect();
    compared(vec![listed(6, &[("a", 3)]), listed(9, &[("b", 8)])], watches, events, &requests);
}

/// The same with these answers to lists.
#[track_caller]
fn compared(lists: Vec<Answer>, watches: Vec<Answer>, events: &[&str], requests: &[&str]) {
    let (found, asked) = block_on(async {
        let limits = Limits { short_watch: MS(100), ..patient() };
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
fn a_silent_watch_resumes_from_the_stored_version_without_a_list() {
    resumes(vec![watching(&[])], &["resumed@5"], &["watch 5"]);
}

#[test]
fn missed_events_come_before_the_watch_counts_as_resumed() {
    let frames = [frame("MODIFIED", &object("a", 7)), frame("DELETED", &object("b", 9))];
    resumes(vec![watching(&frames)], &["applied a@7", "deleted b@9", "resumed@9"], &["watch 5"]);
}

#[test]
fn a_bookmark_completes_the_resumption() {
    let bookmark = frame("BOOKMARK", r#"{"metadata":{"resourceVersion":"6"}}"#);
    resumes(vec![watching(&[bookmark])], &["bookmark@6", "resumed@6"], &["watch 5"]);
}

#[test]
fn an_expired_version_causes_one_list() {
    let event = Answer::ok(expired());
    resumes(vec![event, watching(&[])], &["listed@9 b@8"], &["watch 5", "list", "watch 9"]);
    resumes(vec![Answer::status(410), watching(&[])], &["listed@9 b@8"], &["watch 5", "list", "watch 9"]);
}

#[test]
fn a_version_ahead_of_the_server_causes_one_list() {
    resumes(vec![Answer::status(504), watching(&[])], &["failing*", "listed@9 b@8"], &["watch 5", "list", "watch 9"]);
}

#[test]
fn an_unavailable_server_is_retried_from_the_same_version() {
    resumes(
        vec![Answer::HangUp, Answer::status(503), watching(&[])],
        &["failing*", "failing*", "watching", "resumed@5"],
        &["watch 5", "watch 5", "watch 5"],
    );
}

#[test]
fn a_restored_server_is_listed_before_it_is_watched() {
    let lists = || vec![listed(4, &[("a", 3)]), listed(4, &[("a", 3)])];
    compared(lists(), vec![watching(&[])], &["listed@4 a@3"], &["list limit=1", "list", "watch 4"]);
}

#[test]
fn incomparable_versions_are_treated_as_a_restored_server() {
    let odd = || listed(6, &[]).edited(|text| text.replace("\"6\"", "\"x6\""));
    compared(vec![odd(), listed(9, &[("b", 8)])], vec![], &["listed@9 b@8"], &["list limit=1", "list", "watch 9"]);
}

#[test]
fn nothing_is_resumed_before_the_server_states_its_version() {
    let lists = vec![Answer::HangUp, Answer::status(503), listed(5, &[("a", 3)])];
    compared(
        lists,
        vec![watching(&[])],
        &["failing*", "failing*", "watching", "resumed@5"],
        &["list limit=1", "list limit=1", "list limit=1", "watch 5"],
    );
}

#[test]
fn a_partial_event_is_not_silence() {
    let event = frame("MODIFIED", &object("a", 7));
    let (first, second) = event.split_at(event.len() / 2);
    let slow = Answer::steps(vec![
        Step::Send(first.to_owned()),
        Step::Pause(MS(400)),
        Step::Send(second.to_owned()),
        Step::Hang,
    ]);
    resumes(vec![slow], &["applied a@7", "resumed@7"], &["watch 5"]);
}

/// The answers of a server by path: the uid of its cluster, and a list at 9.
#[track_caller]
fn of_cluster(kept: Option<&str>, served: Answer, requests: &[&str]) {
    let asked =
        block_on(async {
            let mut served = Some(served);
            let decide = move |seen: &Seen, _: &http::HeaderMap| match &*seen.path {
                "/api/v1/namespaces/kube-system" => served.take().expect("it is asked once"),
                _ if seen.is_watch() => Answer::steps(vec![Step::Hang]),
                _ => listed(9, &[("b", 8)]),
            };
            let api = FakeApi::start(Box::new(decide), None).await;
            let config = kube::Config::new(api.url.parse().unwrap());
            let client = connect(
                &Access::of(&Following::new().unwrap(), "test", config).unwrap(),
                Deadlines::WATCH,
                &ApiServer::default(),
            )
            .unwrap();
            let metrics = CollectionMetrics::register(&Registry::new()).unwrap();
            let (events, _open) = mpsc::channel(64);
            let interest = Interest::in_all_of(Collection { kind: Kind::Service, namespace: None });
            let identity = Identity::new(client.clone(), patient(), kept.map(Into::into));
            let informer = Informer::new(client, interest, patient(), events, &metrics, 7).resuming("5".into());
            let stop = CancellationToken::new();
            let _ended = stop.clone().drop_guard();
            tokio::spawn(informer.of_cluster(identity).run(stop));
            let started = tokio::time::Instant::now();
            loop {
                let seen = api.seen().await;
                if seen.len() >= requests.len() || started.elapsed() > DEADLINE {
                    return seen
                        .iter()
                        .take(requests.len())
                        .map(|seen| {
                            if seen.path.ends_with("kube-system") { "identity".to_owned() } else { request_text(seen) }
                        })
                        .collect::<Vec<_>>();
                }
                tokio::time::sleep(MS(5)).await;
            }
        });
    assert_eq!(asked, requests);
}

#[test]
fn another_cluster_at_the_same_address_is_listed() {
    let namespace = |uid: &str| Answer::ok(format!(r#"{{"metadata":{{"name":"kube-system","uid":"{uid}"}}}}"#));
    of_cluster(Some("one"), namespace("two"), &["identity", "list", "watch 9"]);
    of_cluster(Some("one"), namespace("one"), &["identity", "list limit=1", "watch 5"]);
    of_cluster(None, namespace("two"), &["identity", "list limit=1", "watch 5"]);
    // If the namespace may not be read, only versions are compared.
    of_cluster(Some("one"), Answer::status(403), &["identity", "list limit=1", "watch 5"]);
}
