//! A forwarded request: what measures its endpoint, and its charges.

use tidegate_config::model::{AppProtocol, Endpoint};

use super::*;
use crate::clock;
use crate::connection::ConnectionFacts;
use crate::observe::metrics::DriverUsed;

use crate::request::decide::Decided;
use crate::request::exchange::Arrived;
use crate::request::hygiene::{HeadFacts, Protocol};
use crate::request::phase;
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
    let shared = Shared::sample();
    let (mut forwarding, _) = forwarded(&shared);
    let began = forwarding.began();
    forwarding.attempt(began, 7).unwrap();
    forwarding.connected(true, began);
    let later = began + Duration::from_millis(20);
    act(&mut forwarding, later);
    let id = Endpoint::tcp(ENDPOINT.into(), None).id;
    let latency = shared.endpoints.peek(id, |state| state.load(shared.endpoints.moment(later)).latency_us);
    let latency = latency.flatten().map(|latency| Duration::from_micros(latency.round() as u64));
    assert_eq!(latency, want);
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
fn a_request_returns_its_charges_once() {
    let shared = Shared::sample();
    let free = shared.budget.taken();
    for is_recorded in [true, false] {
        let (mut forwarding, head) = forwarded(&shared);
        assert_ne!(shared.budget.taken(), free);
        assert_eq!(shared.metrics.in_flight.get(), 1);
        if is_recorded {
            for _ in 0..2 {
                forwarding.record(Some(&head), &End::abandoned());
                assert_eq!(shared.budget.taken(), free);
            }
        }
        drop(forwarding);
        assert_eq!((shared.budget.taken(), shared.metrics.in_flight.get()), (free, 0));
    }
}
