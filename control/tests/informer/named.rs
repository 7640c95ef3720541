//! Secrets by name, with valid and invalid answers of the server. The decisions from answers are tested beside the
//! code; these tests are about the classification of an answer.

use std::collections::VecDeque;

use tidegate_config::object::ObjectName;
use tidegate_control::{SecretInterest, SecretPoller, SecretPollerMetrics};

use super::*;

const REFRESH: Duration = Duration::from_millis(10);

struct PollState {
    api: FakeApi,
    registry: Registry,
    changes: mpsc::UnboundedSender<Vec<SecretInterest>>,
    events: mpsc::Receiver<Event>,
    _stop: DropGuard,
}

impl PollState {
    /// Every request gets the next answer; after the last one, none.
    async fn start(answers: Vec<Answer>, limits: Limits) -> Self {
        let mut answers = VecDeque::from(answers);
        let decide = move |_: &Seen, _: &http::HeaderMap| answers.pop_front().unwrap_or(Answer::Mute);
        let api = FakeApi::start(Box::new(decide), None).await;
        let client = connect(
            &Access::of(&Following::new().unwrap(), "test", kube::Config::new(api.url.parse().unwrap())).unwrap(),
            Deadlines::WATCH,
            &ApiServer::default(),
        )
        .unwrap();
        let registry = Registry::new();
        let (changes, named) = mpsc::unbounded_channel();
        let (sender, events) = mpsc::channel(16);
        let metrics = SecretPollerMetrics::register(&registry).unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(SecretPoller::new(client, (REFRESH, limits), named, sender, metrics, 7).run(stop.clone()));
        Self { api, registry, changes, events, _stop: stop.drop_guard() }
    }

    fn begin(&self, name: &str) {
        self.changes.send(vec![SecretInterest::Add(ObjectName::new("shop", name))]).unwrap();
    }

    async fn next(&mut self) -> String {
        let event = tokio::time::timeout(DEADLINE, self.events.recv()).await.expect("an event in time");
        text(&event.expect("it runs"))
    }

    /// The number of Secrets whose last read failed.
    fn failing(&self) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == "tidegate_secrets_failing").unwrap();
        family.get_metric()[0].get_gauge().get_value()
    }

    fn reads(&self, outcome: &str) -> f64 {
        let families = self.registry.gather();
        let reads = families.iter().find(|family| family.name() == "tidegate_secret_reads_total");
        let series = reads.map_or(&[][..], |family| family.get_metric());
        let of = |metric: &&prometheus::proto::Metric| metric.get_label()[0].value() == outcome;
        series.iter().find(of).map_or(0.0, |metric| metric.get_counter().get_value())
    }
}

fn secret(name: &str, version: u32) -> String {
    format!(r#"{{"metadata":{{"namespace":"shop","name":"{name}","resourceVersion":"{version}"}}}}"#)
}

fn not_found(name: &str) -> Answer {
    let body = format!(r#"{{"kind":"Status","reason":"NotFound","code":404,"details":{{"name":"{name}"}}}}"#);
    Answer::Is { status: 404, headers: Vec::new(), body: vec![Step::Send(body)] }
}

#[tokio::test]
async fn an_object_is_polled_repeatedly() {
    let answers = (1..=3).map(|version| Answer::ok(secret("a", version))).collect();
    let mut following = PollState::start(answers, patient()).await;
    following.begin("a");
    assert_eq!(following.next().await, "applied a@1");
    assert!(following.next().await.starts_with("listed"));
    assert_eq!(following.next().await, "applied a@2");
    assert_eq!(following.next().await, "applied a@3");
    let paths: Vec<String> = following.api.seen().await.into_iter().map(|seen| seen.path).collect();
    assert!(paths.iter().all(|path| path == "/api/v1/namespaces/shop/secrets/a"), "{paths:?}");
}

#[tokio::test]
async fn an_object_is_deleted_after_two_404_answers() {
    let answers = vec![Answer::ok(secret("a", 1)), not_found("a"), not_found("a")];
    let mut following = PollState::start(answers, patient()).await;
    following.begin("a");
    assert_eq!(following.next().await, "applied a@1");
    assert!(following.next().await.starts_with("listed"));
    assert!(following.next().await.starts_with("deleted a"));
    assert!((following.reads("gone") - 2.0).abs() < 0.1);
}

#[tokio::test]
async fn an_unusable_answer_removes_nothing() {
    let page = |status, body: &str| Answer::Is { status, headers: Vec::new(), body: vec![Step::Send(body.to_owned())] };
    let whole = secret("a", 2);
    for (answer, why) in [
        (Answer::status(403), "answered 403"),
        (Answer::status(500), "answered 500"),
        (Answer::status(404), "answered 404"),
        (page(404, "<html>no such page</html>"), "answered 404"),
        (not_found("b"), "answered 404"),
        (page(301, ""), "answered 301"),
        (Answer::HangUp, "connection"),
        (Answer::Mute, "no answer in time"),
        (Answer::steps(vec![Step::Send(whole[..20].to_owned()), Step::Hang]), "the response stalled"),
        (Answer::steps(vec![Step::Send(whole[..20].to_owned()), Step::Cut]), "connection"),
        (Answer::ok(&whole[..20]), "cannot be read"),
        (Answer::ok(secret("b", 2)), "another object"),
        (Answer::ok(r#"{"kind":"SecretList","metadata":{"resourceVersion":"2"},"items":[]}"#), "cannot be read"),
        (Answer::ok(format!("{whole}{}", " ".repeat(2000))), "too long"),
    ] {
        let limits = Limits { headers: MS(1500), list_stall: MS(1500), frame_bytes_max: 1000, ..patient() };
        let mut following = PollState::start(vec![Answer::ok(secret("a", 1)), answer], limits).await;
        following.begin("a");
        assert_eq!(following.next().await, "applied a@1");
        assert!(following.next().await.starts_with("listed"));
        assert!(following.failing() < 0.1, "{why}");
        let told = following.next().await;
        assert!(told.starts_with("failing: ") && told.contains(why), "{told}, not {why}");
        assert!((following.failing() - 1.0).abs() < 0.1, "{why}");
        assert!((following.reads("failed") - 1.0).abs() < 0.1, "{why}");
    }
}

#[tokio::test]
async fn an_invalid_name_is_not_requested() {
    let following = PollState::start(Vec::new(), patient()).await;
    following.begin("../configmaps/a");
    let asked = async {
        while following.reads("gone") < 2.0 {
            tokio::time::sleep(MS(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, asked).await.expect("two answers");
    assert_eq!(following.api.seen().await.len(), 0);
}
