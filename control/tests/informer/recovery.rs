//! An API server that recovers: the informer that finds it first notifies the others.

use tidegate_control::Recovery;

use super::*;

/// Two informers of one server: the tested one, of Services, whose pauses last for an hour, and one of Ingresses that
/// retries permanently.
struct Pair {
    api: FakeApi,
    registry: Registry,
    recovery: Recovery,
    sender: mpsc::Sender<Event>,
    events: mpsc::Receiver<Event>,
    stop: CancellationToken,
    _end: DropGuard,
}

impl Pair {
    /// Each function answers the nth list or watch of its kind.
    async fn new(looked_at: fn(usize, bool) -> Answer, other: fn(usize, bool) -> Answer) -> Self {
        let mut counts = [0; 4];
        let decide = move |seen: &Seen, _: &http::HeaderMap| {
            let services = seen.path.ends_with("/services");
            let count = &mut counts[usize::from(services) * 2 + usize::from(seen.is_watch())];
            *count += 1;
            (if services { looked_at } else { other })(*count - 1, seen.is_watch())
        };
        let api = FakeApi::start(Box::new(decide), None).await;
        let (sender, events) = mpsc::channel(1024);
        let (registry, recovery, stop) = (Registry::new(), Recovery::default(), CancellationToken::new());
        Self { api, registry, recovery, sender, events, _end: stop.clone().drop_guard(), stop }
    }

    fn begin(&self, kind: Kind, limits: Limits, metrics: &CollectionMetrics) {
        let client = connect(
            &Access::of(&Following::new().unwrap(), "test", kube::Config::new(self.api.url.parse().unwrap())).unwrap(),
            Deadlines::WATCH,
            &ApiServer::default(),
        )
        .unwrap();
        let interest = Interest::in_all_of(Collection { kind, namespace: None });
        let informer = Informer::new(client, interest, limits, self.sender.clone(), metrics, 7);
        tokio::spawn(informer.sharing(&self.recovery).run(self.stop.clone()));
    }

    /// The number of requests for Services, and for the other kind.
    async fn counts(&self) -> (usize, usize) {
        let seen = self.api.seen().await;
        let services = seen.iter().filter(|seen| seen.path.ends_with("/services")).count();
        (services, seen.len() - services)
    }

    async fn until(&self, what: impl Fn((usize, usize)) -> bool) {
        let so = async {
            while !what(self.counts().await) {
                tokio::time::sleep(MS(2)).await;
            }
        };
        tokio::time::timeout(DEADLINE, so).await.expect("so at last");
    }
}

/// The number of requests for Services, after the other informer has made `asked` requests and some time has passed.
/// The other informer starts when the tested one has failed, or with its first request if `meanwhile`.
fn play(limits: Limits, answers: [fn(usize, bool) -> Answer; 2], meanwhile: bool, asked: usize) -> usize {
    block_on(async {
        let mut pair = Pair::new(answers[0], answers[1]).await;
        let metrics = CollectionMetrics::register(&pair.registry).unwrap();
        let hour = Duration::from_secs(3600);
        let looked_at =
            Limits { headers: MS(300), backoff_first: hour, backoff_max: hour, recovery_spread: MS(50), ..patient() };
        pair.begin(Kind::Service, looked_at, &metrics);
        if meanwhile {
            pair.until(|(services, _)| services == 1).await;
        } else {
            assert!(text(&pair.events.recv().await.unwrap()).starts_with("failing"));
        }
        pair.begin(Kind::Ingress, limits, &metrics);
        pair.until(|(_, others)| others >= asked).await;
        tokio::time::sleep(MS(600)).await;
        pair.counts().await.0
    })
}

/// Unavailable for one request, and healthy from then on.
fn comes_back(nth: usize, watch: bool) -> Answer {
    match (nth, watch) {
        (_, true) => Answer::steps(vec![Step::Hang]),
        (0, false) => Answer::HangUp,
        _ => listed(5, &[]),
    }
}

#[track_caller]
fn check(answer: fn(usize, bool) -> Answer, meanwhile: bool, want: usize) {
    assert_eq!(play(patient(), [answer, comes_back], meanwhile, 3), want);
}

#[test]
fn a_collection_that_waits_for_the_server_resumes_when_another_reaches_it() {
    // The failed list, the successful one, and the watch after it.
    check(|nth, watch| if nth == 0 { Answer::HangUp } else { comes_back(nth, watch) }, false, 3);
    check(|nth, watch| if nth == 0 && !watch { Answer::status(401) } else { comes_back(nth, watch) }, false, 3);
    check(|nth, watch| if nth == 0 && !watch { Answer::status(503) } else { comes_back(nth, watch) }, false, 3);
    // The server recovers while a request is in progress that will not be answered.
    check(|nth, watch| if nth == 0 && !watch { Answer::Mute } else { comes_back(nth, watch) }, true, 3);
}

#[test]
fn a_collection_that_waits_for_another_reason_keeps_waiting() {
    check(|_, _| Answer::status(403), false, 1);
    check(|_, _| Answer::status(404), false, 1);
    check(|_, _| Answer::ok("<html>"), false, 1);
    check(|_, _| Answer::status(429), false, 1);
    check(|_, _| Answer::status(503).with("retry-after", "60"), false, 1);
}

#[test]
fn an_unsteady_recovery_is_followed_once() {
    // A server that fails every other list and keeps no history.
    let unsteady = |nth: usize, watch: bool| match (nth % 2, watch) {
        (_, true) => Answer::status(410),
        (0, false) => Answer::HangUp,
        _ => listed(5, &[]),
    };
    assert_eq!(play(patient(), [|_, _| Answer::HangUp, unsteady], false, 60), 2);
}

#[test]
fn a_watch_that_is_cut_at_once_is_not_a_recovery() {
    let cut = |_: usize, watch: bool| {
        if watch { Answer::steps(vec![Step::Send(String::new()), Step::Cut]) } else { listed(5, &[]) }
    };
    let limits = Limits { short_watch: DEADLINE, ..patient() };
    assert_eq!(play(limits, [|_, _| Answer::HangUp, cut], false, 10), 1);
}
