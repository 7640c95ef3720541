//! The requests over time, and the events after their answers.

use tidegate_config::project::project;

use super::ask::is_name;
use super::*;

const REFRESH: Duration = Duration::from_secs(100);
const SECOND: Duration = Duration::from_secs(1);

/// A poll state with a clock of its own.
struct Bench {
    following: PollState,
    now: Instant,
    news: Vec<Event>,
}

fn name(name: &str) -> ObjectName {
    ObjectName::new("shop", name)
}

fn begin(names: &[&str]) -> Vec<SecretInterest> {
    names.iter().map(|secret| SecretInterest::Add(name(secret))).collect()
}

fn found(secret: &str) -> GetResult {
    let object = format!(r#"{{"metadata":{{"namespace":"shop","name":"{secret}","resourceVersion":"1"}}}}"#);
    GetResult::Found(Box::new(project(Kind::Secret, object.as_bytes()).unwrap()))
}

fn refused(code: u16) -> GetResult {
    GetResult::Failed(Failure::Refused { code, why: "no".to_owned(), retry_after: None })
}

fn failed() -> GetResult {
    GetResult::Failed(Failure::NoHeaders)
}

fn text(event: &Event) -> String {
    match event {
        Event::Applied { projected, .. } => format!("applied {}", projected.meta.object.name.name),
        Event::Deleted { object, .. } => format!("deleted {}", object.name.name),
        Event::Failing { why, .. } => format!("failing: {why}"),
        Event::Watching { .. } => "well".to_owned(),
        Event::Listed { complete, objects, .. } => {
            assert!(!complete && objects.is_empty(), "nothing may be taken for gone");
            "settled".to_owned()
        }
        Event::Bookmark { .. }
        | Event::Resumed { .. }
        | Event::Defined { .. }
        | Event::Resolved { .. }
        | Event::KeySet { .. }
        | Event::ApiServer { .. }
        | Event::BindFailures { .. }
        | Event::Unserved { .. }
        | Event::Unreadable { .. }
        | Event::Unlisted { .. } => {
            panic!("{event:?}")
        }
    }
}

impl Bench {
    fn new() -> Self {
        let following = PollState::new(REFRESH, Meter::default());
        Self { following, now: clock::now(), news: Vec::new() }
    }

    fn follow(&mut self, changes: Vec<SecretInterest>) {
        self.following.follow(changes, self.now, &mut self.news);
    }

    fn take(&mut self, secret: &str, answer: GetResult) -> bool {
        let time = (self.now, u64::MAX / 2);
        self.following.take(&name(secret), answer, Duration::from_secs(60), time, &mut self.news)
    }

    /// Requests all Secrets that are due now, each once, with this answer.
    fn answer(&mut self, answer: impl Fn(&str) -> GetResult) {
        let mut asked = Vec::new();
        while let Some(secret) = self.following.next(self.now, &mut self.news) {
            asked.push(Arc::clone(&secret.name));
        }
        for secret in asked {
            self.take(&secret, answer(&secret));
        }
    }

    #[track_caller]
    fn check_asked(&mut self, want: &[&str]) {
        let mut asked = Vec::new();
        while let Some(secret) = self.following.next(self.now, &mut self.news) {
            asked.push(secret.name.to_string());
        }
        assert_eq!(asked, want);
    }

    #[track_caller]
    fn check(&mut self, want: &[&str]) {
        let news: Vec<String> = std::mem::take(&mut self.news).iter().map(text).collect();
        assert_eq!(news, want);
    }
}

#[test]
fn the_first_names_are_settled_once_each_has_an_answer() {
    let mut bench = Bench::new();
    bench.follow(Vec::new());
    bench.check(&["settled"]);

    let mut bench = Bench::new();
    bench.follow(begin(&["a", "b", "c"]));
    bench.check_asked(&["a", "b", "c"]);
    bench.take("a", found("a"));
    bench.take("b", GetResult::Gone);
    bench.take("c", failed());
    bench.check(&["applied a"]);
    bench.now += 60 * SECOND;
    bench.answer(|secret| if secret == "c" { found("c") } else { GetResult::Gone });
    bench.check(&["deleted b", "applied c", "settled"]);
}

/// Compares the number of answers for one Secret after which the first changes are settled, beside another Secret that
/// exists.
#[track_caller]
fn check_settles(answer: impl Fn() -> GetResult, times: usize) {
    let mut bench = Bench::new();
    bench.follow(begin(&["a", "b"]));
    let mut seen = Vec::new();
    for round in 1..10 {
        bench.answer(|secret| if secret == "a" { found("a") } else { answer() });
        seen.extend(bench.news.drain(..).map(|event| (round, text(&event))));
        bench.now += 60 * SECOND;
    }
    seen.retain(|(_, text)| text != "applied a");
    assert_eq!(seen, [(times, "settled".to_owned())]);
}

#[test]
fn an_unreadable_secret_does_not_affect_the_others() {
    check_settles(|| refused(403), 2);
    check_settles(|| refused(500), 6);
    check_settles(failed, 6);
}

#[test]
fn a_restored_secret_is_unconfirmed_until_the_api_server_answers() {
    let mut bench = Bench::new();
    bench.following.restored = true;
    bench.follow(begin(&["a", "b"]));
    for _ in 0..20 {
        bench.answer(|secret| if secret == "a" { found("a") } else { failed() });
        bench.now += 200 * SECOND;
    }
    assert!(!bench.news.iter().any(|event| text(event) == "settled"), "{:?}", bench.news);
    bench.news.clear();
    bench.answer(found);
    bench.news.sort_by_key(text);
    bench.check(&["applied a", "applied b", "settled"]);

    let mut bench = Bench::new();
    bench.following.restored = true;
    bench.follow(begin(&["a"]));
    for _ in 0..2 {
        bench.answer(|_| refused(403));
        bench.now += 60 * SECOND;
    }
    assert!(bench.news.iter().any(|event| text(event) == "settled"), "a denial is an answer: {:?}", bench.news);
}

#[test]
fn a_failure_of_every_secret_is_reported() {
    let mut bench = Bench::new();
    bench.follow(begin(&["a", "b"]));
    bench.answer(|_| refused(403));
    bench.check(&["failing: Secret shop/b: the API server answered 403: no"]);
    bench.now += 60 * SECOND;
    bench.answer(|_| refused(403));
    bench.check(&["settled"]);
    // A Secret without an answer yet does not count as failing.
    bench.follow(begin(&["c"]));
    bench.answer(found);
    bench.check(&["applied c", "well"]);
    bench.now += 60 * SECOND;
    bench.answer(|_| refused(403));
    bench.check(&[]);
    // Nor does one without references, after it was dropped.
    bench.follow(vec![SecretInterest::Remove(name("c"))]);
    bench.now += 2 * REFRESH;
    bench.answer(|_| refused(403));
    bench.check(&["deleted c", "failing: Secret shop/a: the API server answered 403: no"]);
}

#[test]
fn a_failing_secret_keeps_its_state_and_is_retried() {
    let mut bench = Bench::new();
    bench.follow(begin(&["a"]));
    bench.answer(found);
    bench.check(&["applied a", "settled"]);
    bench.now += 2 * REFRESH;
    for _ in 0..20 {
        bench.answer(|_| failed());
        bench.now += 60 * SECOND;
    }
    bench.check(&["failing: Secret shop/a: no answer in time"]);
    bench.now += REFRESH;
    bench.answer(found);
    bench.check(&["applied a", "well"]);
}

/// Compares the number of requests in a minute in which every answer is this; after each a recovery of the server is
/// notified, or not.
#[track_caller]
fn check_tries(answer: impl Fn() -> GetResult, recovered: bool, want: usize) {
    let (mut bench, mut rng, mut tries) = (Bench::new(), fastrand::Rng::with_seed(7), 0);
    let end = bench.now + 60 * SECOND;
    bench.follow(begin(&["a"]));
    while bench.now < end {
        bench.answer(|_| answer());
        tries += 1;
        if recovered {
            bench.following.recovered(SECOND, bench.now, &mut rng);
        }
        bench.now = bench.following.queue.next_due().expect("it is tried again");
    }
    assert_eq!(tries, want);
}

#[test]
fn retries_back_off_whatever_the_server_asks_for() {
    let asked = |seconds| {
        let retry_after = Some(Duration::from_secs(seconds));
        move || GetResult::Failed(Failure::Refused { code: 429, why: String::new(), retry_after })
    };
    check_tries(|| refused(429), false, 7);
    check_tries(asked(0), false, 7);
    check_tries(asked(1), false, 7);
    check_tries(asked(20), false, 3);
    check_tries(asked(1000), false, 1);
}

#[test]
fn a_recovery_ends_every_other_wait_for_the_server() {
    check_tries(failed, false, 7);
    check_tries(failed, true, 8);
    check_tries(|| refused(404), true, 7);

    let (mut bench, mut rng) = (Bench::new(), fastrand::Rng::with_seed(7));
    bench.follow(begin(&["a"]));
    for failures in 1..12 {
        bench.answer(|_| failed());
        let due = |bench: &Bench| bench.following.queue.next_due().unwrap() - bench.now;
        let before = due(&bench);
        bench.following.recovered(SECOND, bench.now, &mut rng);
        let hurried = if failures % 2 == 1 { due(&bench) <= SECOND } else { due(&bench) == before };
        assert!(hurried, "after {failures} failures: {before:?}, then {:?}", due(&bench));
        bench.now += due(&bench);
    }
}

#[test]
fn the_first_answer_after_server_failures_is_a_recovery() {
    let mut bench = Bench::new();
    bench.follow(begin(&["a", "b"]));
    bench.check_asked(&["a", "b"]);
    assert!(!bench.take("a", failed()) && !bench.take("b", refused(404)));
    bench.now += 60 * SECOND;
    bench.check_asked(&["a", "b"]);
    assert!(bench.take("a", found("a")), "it was away");
    assert!(!bench.take("b", found("b")), "that was about the Secret");
}

#[test]
fn a_deletion_needs_two_answers() {
    let mut bench = Bench::new();
    bench.follow(begin(&["a"]));
    bench.answer(found);
    bench.news.clear();
    for _ in 0..3 {
        bench.now += 2 * REFRESH;
        bench.answer(|_| GetResult::Gone);
        bench.check(&[]);
        bench.check_asked(&[]);
        bench.now += CONFIRM_AFTER;
        bench.answer(found);
        bench.check(&["applied a"]);
    }
    bench.now += 2 * REFRESH;
    bench.answer(|_| GetResult::Gone);
    bench.now += CONFIRM_AFTER;
    bench.answer(|_| failed());
    bench.check(&["failing: Secret shop/a: no answer in time"]);
    bench.now += 60 * SECOND;
    bench.answer(|_| GetResult::Gone);
    bench.check(&["deleted a", "well"]);
    bench.now += 2 * REFRESH;
    bench.answer(|_| GetResult::Gone);
    bench.check(&[]);
    bench.now += 2 * REFRESH;
    bench.answer(found);
    bench.check(&["applied a"]);
}

#[test]
fn new_references_are_requested_at_once_and_old_ones_when_due() {
    let mut bench = Bench::new();
    bench.follow(begin(&["a"]));
    bench.answer(found);
    bench.now += REFRESH - SECOND;
    bench.check_asked(&[]);
    bench.follow(begin(&["b"]));
    bench.answer(found);
    bench.check(&["applied a", "settled", "applied b"]);
    // Between one and one and a half refresh intervals.
    bench.now += REFRESH / 2 + 2 * SECOND;
    bench.answer(found);
    bench.check(&["applied a"]);
}

#[test]
fn unreferenced_secrets_are_dropped_after_a_while() {
    let mut bench = Bench::new();
    bench.follow(begin(&["a", "b"]));
    bench.answer(found);
    bench.news.clear();
    bench.follow(vec![
        SecretInterest::Remove(name("a")),
        SecretInterest::Remove(name("b")),
        SecretInterest::Add(name("b")),
    ]);
    bench.answer(found);
    bench.check(&["applied b"]);
    bench.now += 2 * REFRESH;
    bench.check_asked(&["b"]);
    bench.check(&["deleted a"]);
    bench.follow(vec![SecretInterest::Remove(name("c"))]);
    bench.check(&[]);
}

#[test]
fn invalid_object_names_are_rejected() {
    for good in ["a", "a-1.b", &"x".repeat(253)] {
        assert!(is_name(good), "{good}");
    }
    for bad in ["", ".", "..", "a/b", "../x", "A", "a%2fb", "a?b", "-a", "a.", "a b", "\u{e9}", &"x".repeat(254)] {
        assert!(!is_name(bad), "{bad}");
    }
}
