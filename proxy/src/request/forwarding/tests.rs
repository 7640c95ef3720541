//! A forwarded request: what measures its endpoint, and its charges.

use tidegate_config::model::{AppProtocol, Endpoint};

use super::*;
use crate::clock;
use crate::connection::ConnectionFacts;
use crate::observe::metrics::DriverUsed;

use crate::request::decide::Decided;
use crate::request::exchange::Arrived;
use crate::request::phase;
use crate::request::validate::{HeadFacts, Protocol};
use crate::sample::Sample;
use crate::sample_model::{endpoints, parts, path, published, to_backend};
use crate::upstream::retry::FailureStage;

const ENDPOINT: ([u8; 4], u16) = ([10, 0, 0, 1], 80);

/// A GET that goes to the only endpoint of its route.
fn forwarded(shared: &Arc<Shared>) -> (Forwarding, Sample) {
    let mut model = parts(vec![("a.test", vec![to_backend("web", path("/"), AppProtocol::Http)])], None);
    endpoints(&mut model, "web", &[ENDPOINT.into()]);
    let (snapshot, head) = (published(model).pin(), Sample::get("a.test", "/"));
    let facts = Arc::new(ConnectionFacts::sample(([192, 0, 2, 1], 5000).into()));
    let line = HeadFacts {
        protocol: Protocol::Http11,
        target_authority: None,
        header_lines: 0,
        header_bytes: 0,
        longest_header: 0,
    };
    let routed = phase::route(&snapshot, shared, &facts, &head, &line);
    let arrived = Arrived::new(DriverUsed::Native, snapshot, Arc::clone(shared), clock::now());
    let Decided::Forwards(forwarding) = arrived.decide(routed, &facts, &head, 7) else { panic!("it is not forwarded") };
    (forwarding, head)
}

/// Plays an attempt; `want` is the latency that its endpoint has then, 20 ms after the connection was open.
#[track_caller]
fn check_latency(act: impl FnOnce(&mut Forwarding, Instant), want: Option<Duration>) {
    let acted = |mut forwarding: Forwarding, later| {
        act(&mut forwarding, later);
        Some(forwarding)
    };
    assert_eq!(latency_after(acted), want);
}

/// The latency of the endpoint of an attempt 20 ms after its connection was open. `act` may drop the request.
fn latency_after(act: impl FnOnce(Forwarding, Instant) -> Option<Forwarding>) -> Option<Duration> {
    let shared = Shared::sample();
    let (mut forwarding, _) = forwarded(&shared);
    let began = forwarding.began();
    forwarding.attempt(began, 7).unwrap();
    forwarding.connected(true, began);
    let later = began + Duration::from_millis(20);
    let _rest = act(forwarding, later);
    let id = Endpoint::tcp(ENDPOINT.into(), None).id;
    let latency = shared.endpoints.peek(id, |state| state.load(shared.endpoints.moment(later)).latency_us);
    latency.flatten().map(|latency| Duration::from_micros(latency.round() as u64))
}

#[test]
fn a_response_measures_its_endpoint_unless_the_client_sent_a_body() {
    let (measured, failed) = (Some(Duration::from_millis(20)), Some(Duration::from_secs(1)));
    check_latency(|forwarding, later| forwarding.response_began(200, later), measured);
    check_latency(|forwarding, later| forwarding.response_began(503, later), failed);
    let uploaded = |status| {
        move |forwarding: &mut Forwarding, later| {
            forwarding.count(1, true).unwrap();
            forwarding.response_began(status, later);
        }
    };
    check_latency(uploaded(200), None);
    check_latency(uploaded(503), failed);
}

/// Sets one of the deadlines of a request to a time.
type Deadline = fn(&mut Forwarding, Instant);

#[test]
fn a_timeout_during_an_upload_is_not_counted_as_latency() {
    let failed = Some(Duration::from_secs(1));
    let deadlines: [Deadline; 3] = [
        |forwarding, end| {
            forwarding.effective.request_timeout = Some(end.saturating_duration_since(forwarding.began()))
        },
        |forwarding, end| forwarding.effective.total_timeout = Some(end.saturating_duration_since(forwarding.began())),
        |forwarding, end| forwarding.attempt_end = Some(end),
    ];
    for set in deadlines {
        let timed_out = |is_whole| {
            move |forwarding: &mut Forwarding, later| {
                forwarding.count(0, is_whole).unwrap();
                set(forwarding, later);
                forwarding.broke(Reason::UpstreamTimeout, FailureStage::Later, later);
            }
        };
        check_latency(timed_out(false), None);
        check_latency(timed_out(true), failed);
        let dropped = |is_whole| {
            move |mut forwarding: Forwarding, _| {
                forwarding.count(0, is_whole).unwrap();
                let began = forwarding.began();
                set(&mut forwarding, began);
                forwarding.due = Some(began);
                None
            }
        };
        assert_eq!(latency_after(dropped(false)), None);
        assert!(latency_after(dropped(true)).is_some());
    }
}

#[test]
fn an_endpoint_that_takes_no_more_of_an_upload_is_at_fault() {
    check_latency(
        |forwarding, later| {
            forwarding.count(1, false).unwrap();
            forwarding.broke(Reason::UpstreamTimeout, FailureStage::Later, later);
        },
        Some(Duration::from_secs(1)),
    );
}

#[test]
fn a_pooled_connection_that_was_closed_is_no_fault_of_its_endpoint() {
    let broke = |reused| {
        move |forwarding: &mut Forwarding, later| {
            let stage = FailureStage::Unanswered { reused, idempotent: true, replayable: true };
            forwarding.broke(Reason::UpstreamBroken, stage, later);
        }
    };
    check_latency(broke(true), None);
    check_latency(broke(false), Some(Duration::from_secs(1)));
}

#[test]
fn an_endpoint_is_not_in_use_during_the_pause_before_a_retry() {
    let shared = Shared::sample();
    let (mut forwarding, _) = forwarded(&shared);
    let began = forwarding.began();
    let id = Endpoint::tcp(ENDPOINT.into(), None).id;
    let in_flight = || shared.endpoints.peek(id, |state| state.in_flight());
    forwarding.attempt(began, 7).unwrap();
    forwarding.connected(false, began);
    assert_eq!(in_flight(), Some(1));
    let stage = FailureStage::Unanswered { reused: false, idempotent: true, replayable: true };
    assert!(forwarding.broke(Reason::UpstreamBroken, stage, began), "it is retried");
    assert_eq!(in_flight(), Some(0));
    forwarding.attempt(began, 7).unwrap();
    assert_eq!(in_flight(), Some(1));
}

/// Fails to connect in an attempt that begins some milliseconds after its request, with a connect timeout of 5 s and
/// other timeouts in milliseconds: of the attempt, and of the request. Checks whether the endpoint is ejected.
#[track_caller]
fn check_ejected((attempt, request): (Option<u64>, Option<u64>), after: u64, reason: Reason, want: bool) {
    let shared = Shared::sample();
    for set in [
        (|effective, limit| effective.request_timeout = limit) as fn(&mut Effective, Option<Duration>),
        |effective, limit| effective.total_timeout = limit,
    ] {
        let (mut forwarding, _) = forwarded(&shared);
        forwarding.effective.connect_timeout = Duration::from_secs(5);
        forwarding.effective.attempt_timeout = attempt.map(Duration::from_millis);
        set(&mut forwarding.effective, request.map(Duration::from_millis));
        let begins = forwarding.began() + Duration::from_millis(after);
        let later = begins + forwarding.attempt(begins, 7).unwrap().connect_timeout();
        forwarding.connect_failed(reason, later);
        let id = Endpoint::tcp(ENDPOINT.into(), None).id;
        let moment = shared.endpoints.moment(later);
        let is_ejected = shared.endpoints.peek(id, |state| state.is_ejected(moment));
        assert_eq!(is_ejected, Some(want), "after {after} ms");
        shared.endpoints.peek(id, |state| state.connected());
    }
}

#[test]
fn an_endpoint_is_not_ejected_if_the_request_had_little_time_left_to_connect() {
    let (timeout, refused) = (Reason::ConnectTimeout, Reason::ConnectFailed);
    check_ejected((None, None), 9000, timeout, true);
    check_ejected((None, Some(8000)), 5400, timeout, true);
    check_ejected((None, Some(8000)), 5600, timeout, false);
    check_ejected((None, Some(8000)), 5600, refused, true);
    // Of short timeouts, an attempt can have no more than the whole.
    check_ejected((None, Some(2000)), 0, timeout, true);
    check_ejected((None, Some(2000)), 900, timeout, true);
    check_ejected((None, Some(2000)), 1100, timeout, false);
    check_ejected((Some(1000), None), 9000, timeout, true);
    check_ejected((Some(1000), Some(8000)), 6000, timeout, true);
    check_ejected((Some(1000), Some(8000)), 7600, timeout, false);
}

#[test]
fn a_request_returns_its_charges_once() {
    let shared = Shared::sample();
    let free = shared.budget.taken();
    for is_recorded in [true, false] {
        let (mut forwarding, head) = forwarded(&shared);
        assert_ne!(shared.budget.taken(), free);
        assert_eq!(shared.metrics.in_flight.get(), 1);
        if is_recorded {
            for _ in 0..2 {
                forwarding.record(Some(&head), &End::aborted());
                assert_eq!(shared.budget.taken(), free);
            }
        }
        drop(forwarding);
        assert_eq!((shared.budget.taken(), shared.metrics.in_flight.get()), (free, 0));
    }
}
