//! Findings as Events, with simulated time: a test of hours takes a moment.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_control::options::Publish;
use tokio::time::sleep;

use crate::edge::{Api, Edge, Refusal, eventually, service};

const SECOND: Duration = Duration::from_secs(1);
const SERVICES: &str = "/api/v1/namespaces/default/services";
/// Longer than the delay before a finding is reported.
const MOMENT: Duration = Duration::from_secs(5);

const FORBIDDEN: Refusal = (403, &[], r#"{"kind":"Status","reason":"Forbidden","message":"no"}"#);

/// Reason and count of the Events about an Ingress.
async fn told(api: &Api, name: &str) -> Vec<(String, i64)> {
    let events = api.events_of(name).await;
    let of =
        |event: &Value| (event["reason"].as_str().unwrap().to_owned(), event["series"]["count"].as_i64().unwrap_or(1));
    events.iter().map(of).collect()
}

async fn is_told(api: &Api, name: &str, reason: &str, count: i64) {
    eventually(|| async { told(api, name).await == [(reason.to_owned(), count)] }).await;
}

#[tokio::test(start_paused = true)]
async fn a_finding_becomes_one_event() {
    let api = Api::new().await;
    api.ingress("bad", "tidegate").await;
    api.ingress("others", "nginx").await;
    let first = Edge::telling(&api, "a");
    is_told(&api, "bad", "ServiceMissing", 1).await;
    let event = api.events_of("bad").await.remove(0);
    assert_eq!((&event["type"], &event["source"]["component"]), (&json!("Warning"), &Value::Null));
    assert_eq!(
        (&event["reportingComponent"], &event["reportingInstance"]),
        (&json!("tidegate.io/tidegate"), &json!("a"))
    );
    let want =
        "spec.rules[0].http.paths[0].backend.service: Service default/web does not exist, so the route answers 503";
    assert_eq!(event["message"], want);

    // Other changes of the object do not change its findings.
    api.patch(
        "/apis/networking.k8s.io/v1/namespaces/default/ingresses/bad",
        &json!({"metadata": {"labels": {"a": "b"}}}),
    )
    .await;
    sleep(MOMENT).await;
    assert_eq!(first.event_writes(), [1, 0, 0, 0, 0, 0]);
    first.end().await;

    let second = Edge::telling(&api, "b");
    eventually(|| async { second.event_writes() != [0; 6] }).await;
    sleep(MOMENT).await;
    assert_eq!(second.event_writes(), [0, 1, 0, 0, 0, 0], "a new leader finds it told");
    assert_eq!(api.events_of("bad").await, [event], "and leaves it as it was");
    assert_eq!(told(&api, "others").await, []);
}

#[tokio::test(start_paused = true)]
async fn a_recurring_finding_is_one_event_series() {
    let api = Api::new().await;
    api.ingress("bad", "tidegate").await;
    let first = Edge::telling(&api, "a");
    is_told(&api, "bad", "ServiceMissing", 1).await;
    for count in [2, 3] {
        api.create(SERVICES, service("web", "ClusterIP")).await;
        sleep(MOMENT).await;
        api.delete(&format!("{SERVICES}/web")).await;
        is_told(&api, "bad", "ServiceMissing", count).await;
    }
    first.end().await;
    // Another leader does not know the series, and continues it.
    let second = Edge::telling(&api, "b");
    eventually(|| async { second.event_writes()[1] == 1 }).await;
    api.create(SERVICES, service("web", "ClusterIP")).await;
    sleep(MOMENT).await;
    api.delete(&format!("{SERVICES}/web")).await;
    is_told(&api, "bad", "ServiceMissing", 4).await;
    assert_eq!(second.event_writes(), [1, 1, 0, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_standing_finding_is_repeated_at_long_intervals() {
    let api = Api::new().await;
    api.ingress("bad", "tidegate").await;
    let edge = Edge::telling(&api, "a");
    is_told(&api, "bad", "ServiceMissing", 1).await;
    sleep(SECOND * 60 * 19).await;
    assert_eq!(edge.event_writes(), [1, 0, 0, 0, 0, 0], "in between it is quiet");
    sleep(SECOND * 60 * 43).await;
    assert_eq!(
        (told(&api, "bad").await, edge.event_writes()),
        (vec![("ServiceMissing".to_owned(), 4)], [4, 0, 0, 0, 0, 0])
    );

    // API servers may delete Events earlier.
    let event = api.events_of("bad").await.remove(0);
    api.delete(&format!("/api/v1/namespaces/default/events/{}", event["metadata"]["name"].as_str().unwrap())).await;
    sleep(SECOND * 60 * 20).await;
    assert_eq!(
        (told(&api, "bad").await, edge.event_writes()),
        (vec![("ServiceMissing".to_owned(), 1)], [5, 0, 1, 0, 0, 0])
    );
}

#[tokio::test(start_paused = true)]
async fn a_finding_that_is_fixed_at_once_is_not_reported() {
    let api = Api::new().await;
    let edge = Edge::telling(&api, "a");
    eventually(|| async { edge.leads() == 1 && edge.ready() }).await;
    api.ingress("bad", "tidegate").await;
    sleep(SECOND).await;
    assert_eq!(edge.view.findings().await.unwrap().len(), 1);
    api.create(SERVICES, service("web", "ClusterIP")).await;
    sleep(MOMENT).await;
    assert_eq!(edge.event_writes(), [0; 6]);
}

#[tokio::test(start_paused = true)]
async fn no_event_is_written_when_events_are_off_or_lists_are_missing() {
    let api = Api::new().await;
    api.ingress("bad", "tidegate").await;
    let off = Edge::start(&api, Publish::Nothing, "a");
    eventually(|| async { off.leads() == 1 && off.ready() }).await;
    sleep(MOMENT).await;
    assert_eq!((off.event_writes(), told(&api, "bad").await), ([0; 6], vec![]));
    off.end().await;
    let held = api.slow(SECOND * 600, |request| request.uri().path().ends_with("/secrets"));
    let edge = Edge::telling(&api, "b");
    eventually(|| async { edge.leads() == 1 && edge.ready() }).await;
    sleep(MOMENT).await;
    assert_eq!(edge.event_writes(), [0; 6], "Secrets are not listed yet");
    held.end();
    is_told(&api, "bad", "ServiceMissing", 1).await;
}

/// Compares the outcomes of writes in the first minute while requests about Events get this answer. Afterwards the
/// findings are reported.
async fn check(refusal: Refusal, first: [i64; 6], dropped: i64) {
    let api = Api::new().await;
    for name in ["one", "two", "three"] {
        api.ingress(name, "tidegate").await;
    }
    api.refuse(Some(refusal));
    let edge = Edge::telling(&api, "a");
    eventually(|| async { edge.event_writes() != [0; 6] }).await;
    sleep(SECOND * 60).await;
    assert_eq!((edge.event_writes(), edge.dropped()), (first, dropped), "{}", refusal.0);
    assert_eq!(edge.leads(), 1);
    api.refuse(None);
    sleep(SECOND * 60 * 21).await;
    for name in ["one", "two", "three"] {
        let told = told(&api, name).await;
        assert!(
            matches!(told.as_slice(), [(reason, _)] if reason == "ServiceMissing"),
            "{name} after {}: {told:?}",
            refusal.0
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_denies_events_is_retried_with_back_off() {
    // Retries after 5, 10 and 20 seconds.
    check(FORBIDDEN, [0, 0, 0, 0, 4, 0], 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_denial_during_the_start_of_an_api_server_is_retried_soon() {
    let api = Api::new().await;
    api.ingress("bad", "tidegate").await;
    api.refuse(Some(FORBIDDEN));
    let edge = Edge::telling(&api, "a");
    eventually(|| async { edge.event_writes() != [0; 6] }).await;
    sleep(SECOND * 8).await;
    api.refuse(None);
    sleep(SECOND * 9).await;
    assert_eq!(told(&api, "bad").await, [("ServiceMissing".to_owned(), 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_terminating_namespace_gets_no_events() {
    let going = r#"{"kind":"Status","reason":"Forbidden","details":{"causes":[{"reason":"NamespaceTerminating"}]}}"#;
    check((403, &[], going), [0, 0, 3, 0, 0, 0], 0).await;
    check((404, &[], r#"{"kind":"Status","reason":"NotFound"}"#), [0, 0, 3, 0, 0, 0], 0).await;
}

#[tokio::test(start_paused = true)]
async fn retry_after_pauses_events() {
    let busy = "Too many requests, please try again later.";
    // One request every seven seconds.
    check((429, &[("retry-after", "7")], busy), [0, 0, 0, 9, 0, 0], 0).await;
}

#[tokio::test(start_paused = true)]
async fn an_event_that_fails_repeatedly_is_dropped() {
    check((500, &[], "{}"), [0, 0, 0, 0, 0, 15], 3).await;
}

#[tokio::test(start_paused = true)]
async fn events_about_one_object_are_limited() {
    let api = Api::new().await;
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let paths: Vec<Value> =
        (0..60).map(|n| json!({"path": format!("/{n}"), "pathType": "Prefix", "backend": backend})).collect();
    let spec = json!({"ingressClassName": "tidegate", "rules": [{"host": "a.test", "http": {"paths": paths}}]});
    api.create(
        "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
        json!({"metadata": {"name": "bad"}, "spec": spec}),
    )
    .await;
    let edge = Edge::telling(&api, "a");
    eventually(|| async { edge.event_writes()[0] == 25 }).await;
    sleep(SECOND * 60 * 10).await;
    assert_eq!((edge.event_writes(), told(&api, "bad").await.len()), ([25, 0, 0, 0, 0, 0], 25));
}

/// More objects than are remembered: the others are only checked, and each check takes a turn of the loop.
#[tokio::test(start_paused = true)]
async fn findings_beyond_the_limit_do_not_delay_changes() {
    const REMEMBERED: usize = 4096;
    const OTHERS: i64 = 400;
    let api = Api::new().await;
    for number in 0..REMEMBERED as i64 + OTHERS {
        api.ingress(&format!("bad-{number}"), "tidegate").await;
    }
    // A rejected Event counts as reported.
    api.refuse(Some((422, &[], r#"{"kind":"Status","reason":"Invalid"}"#)));
    let edge = Edge::telling(&api, "a");
    while edge.event_writes()[4] < REMEMBERED as i64 {
        sleep(SECOND).await;
    }
    eventually(|| async { edge.dropped() > 0 }).await;
    let mut generation = edge.view.generation();
    generation.borrow_and_update();
    api.ingress("live", "tidegate").await;
    generation.changed().await.unwrap();
    let looked_at = edge.dropped();
    assert!(looked_at < OTHERS, "the change was published after all {looked_at} looks");
    sleep(SECOND * 10).await;
    assert_eq!(edge.dropped(), OTHERS + 1, "all are looked at in the end");
}
