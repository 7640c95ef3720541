//! Requests that routes lead back to the edge.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_config::model::AppProtocol;
use tidegate_proxy::Driver;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::bed::{Answer, Bed, Model};
use super::mirrors::mirror;
use super::upstream::Upstream;

/// A detour back to a bed that the edge cannot recognise, such as a Service in front of it; counts its connections.
async fn detour() -> (std::net::SocketAddr, watch::Sender<Option<std::net::SocketAddr>>, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, mut back) = watch::channel(None);
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            let to = back.wait_for(Option::is_some).await.unwrap().unwrap();
            tokio::spawn(async move {
                let mut onward = TcpStream::connect(to).await.unwrap();
                tokio::io::copy_bidirectional(&mut stream, &mut onward).await.ok();
            });
        }
    });
    (address, sender, taken)
}

#[track_caller]
fn check(answer: &Answer, status: u16, reason: &str) {
    assert_eq!(answer.status, status, "{}{}", answer.head, answer.body);
    assert!(answer.body.contains(&format!("reason: {reason}\n")), "{}", answer.body);
}

#[tokio::test]
async fn a_forwarding_loop_is_ended() {
    let (address, back, taken) = detour().await;
    // The route's own edits cannot hide the loop.
    let model = Model::edited(&[address], |route| {
        let remove = [http::HeaderName::from_static("cdn-loop")].into();
        let edits = tidegate_config::model::HeaderEdits { remove, ..Default::default() };
        route.filters = [tidegate_config::model::Filter::RequestHeaders(edits)].into();
    });
    let bed = Bed::start(model).await;
    back.send_replace(Some(bed.address));
    check(&bed.get("a.test", "/", "").await, 508, "loop-detected");
    assert_eq!(taken.load(Ordering::Relaxed), 3);
    // Nor can a client, by entries of its own or by having the header removed as hop-by-hop.
    check(&bed.get("a.test", "/", "CDN-Loop: x; a=\"\r\n").await, 508, "loop-detected");
    check(&bed.get("a.test", "/", "Connection: cdn-loop\r\n").await, 508, "loop-detected");
    assert!(taken.load(Ordering::Relaxed) <= 9);
    bed.until_metric("tidegate_requests_in_flight 0").await;
}

/// A mirror that leads back to the edge gets one copy of each request, and no copies of copies.
#[tokio::test]
async fn copies_are_not_copied() {
    let (address, back, taken) = detour().await;
    for driver in [Driver::Both, Driver::Pingora] {
        let upstream = Upstream::echo().await;
        let filters = [mirror("back", 1, AppProtocol::Http), mirror("back", 1, AppProtocol::Http)];
        let model = Model::edited(&[upstream.address], |route| route.filters = filters.into());
        let bed = Bed::with(model.backend("back", &[address]), |options| options.driver = driver).await;
        back.send_replace(Some(bed.address));
        let before = taken.load(Ordering::Relaxed);
        assert_eq!(bed.get("a.test", "/", "").await.status, 200);
        bed.until_metric(r#"tidegate_mirrored_requests_total{outcome="passed-before"} 4"#).await;
        bed.until_metric("tidegate_requests_in_flight 0").await;
        assert_eq!(taken.load(Ordering::Relaxed) - before, 2, "{driver:?}");
        // An entry of a client has the same effect as a pass, and those of other edges have none.
        assert_eq!(bed.get("a.test", "/", "CDN-Loop: tidegate\r\n").await.status, 200);
        bed.until_metric(r#"tidegate_mirrored_requests_total{outcome="passed-before"} 6"#).await;
        assert_eq!(bed.get("a.test", "/", "CDN-Loop: other\r\n").await.status, 200);
        bed.until_metric(r#"tidegate_mirrored_requests_total{outcome="passed-before"} 10"#).await;
        assert_eq!(taken.load(Ordering::Relaxed) - before, 4, "{driver:?}");
    }
}

#[tokio::test]
async fn chained_edges_keep_the_cdn_loop_entries_of_others() {
    let mut upstream = Upstream::echo().await;
    let inner =
        Bed::with(Model::to(&[upstream.address]), |options| options.loop_token = "inner".parse().unwrap()).await;
    let outer = Bed::start(Model::to(&[inner.address])).await;
    assert_eq!(outer.get("a.test", "/", "CDN-Loop: other; x=1\r\nCDN-Loop: tidegate\r\n").await.status, 200);
    assert_eq!(upstream.seen().await.header("cdn-loop"), "other; x=1, tidegate, tidegate, inner");
}
