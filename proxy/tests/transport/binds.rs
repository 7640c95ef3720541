//! Binds that are added, removed, fail and share their port between threads.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_config::model::{Guard, HostPattern, HostRoutes, Route};
use tokio::net::TcpStream;

use super::bed::{Bed, PATIENCE, http, https, no_listener};
use super::clients::{Http1, assert_ok};
use crate::skip::skipped;

#[tokio::test]
async fn port_0_is_chosen_once_for_all_threads() {
    let bed = Bed::with(&[http("127.0.0.1:0")], |options| options.threads = 4).await;
    let bound = bed.bound(|bound| bound.iter().any(|(_, bind)| bind.threads() == 4)).await;
    let (_, bind) = bound.iter().next().unwrap();
    assert_ne!(bind.address().unwrap().port(), 0);
    assert!(!bound.is_lost() && bind.error().is_none());
    // Every thread's socket answers: the kernel spreads connections over them.
    for _ in 0..32 {
        assert_ok(&Http1::connect(bind.address().unwrap()).await.get("/").await, "/ ");
    }
}

#[tokio::test]
async fn adding_or_removing_a_bind_does_not_disturb_others() {
    let (kept, other) = (http("127.0.0.1:0"), http("127.0.0.2:0"));
    let mut bed = Bed::start(&[kept]).await;
    let address = bed.address(kept).await;
    let mut client = Http1::connect(address).await;
    assert_ok(&client.get("/1").await, "/1 ");

    bed.listen_on(&[kept, other]);
    let second = bed.address(other).await;
    let mut leaving = Http1::connect(second).await;
    assert_ok(&leaving.get("/2").await, "/2 ");
    leaving.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    bed.upstream.wait_for_requests(3).await;
    let mut idle = Http1::connect(second).await;
    assert_ok(&idle.get("/3").await, "/3 ");

    bed.listen_on(&[kept]);
    bed.bound(|bound| bound.get(&other).is_none()).await;
    no_listener(second).await;
    // Requests in flight on the removed bind finish, then their connections close; idle ones close at once.
    idle.closed().await;
    bed.upstream.go.send_replace(true);
    assert_ok(&leaving.response().await.unwrap(), "/wait ");
    leaving.closed().await;
    // The connection over the other bind is unaffected.
    assert_ok(&client.get("/4").await, "/4 ");
    assert_eq!(bed.address(kept).await, address);
    let gauge = format!("http/{}", other.address);
    assert_eq!(bed.metric("tidegate_bind_listening_threads", Some(&gauge)), 0.0);
}

#[tokio::test]
async fn requests_are_not_forwarded_to_our_own_binds() {
    let (one, other) = (http("127.0.0.1:0"), http("127.0.0.2:0"));
    let mut bed = Bed::start(&[one, other]).await;
    let (address, back) = (bed.address(one).await, bed.address(other).await);
    bed.lead_to(&[address, back]);
    for address in [address, back] {
        let answer = Http1::connect(address).await.get("/").await;
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("no-endpoints"), "{answer}");
    }
}

#[tokio::test]
async fn a_failed_bind_is_reported_and_retried() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (good, bad) = (http("127.0.0.1:0"), http(&taken.local_addr().unwrap().to_string()));
    let bed = Bed::start(&[good, bad]).await;
    assert_ok(&Http1::connect(bed.address(good).await).await.get("/").await, "/ ");
    let bound = bed.bound(|bound| bound.get(&bad).is_some_and(|bind| bind.error().is_some())).await;
    assert_eq!((bound.get(&bad).unwrap().threads(), bound.get(&bad).unwrap().address()), (0, None));
    assert!(!bound.is_lost());
    assert!(bed.metric("tidegate_bind_failures_total", None) >= 1.0);

    drop(taken);
    assert_eq!(bed.address(bad).await, bad.address);
    assert_ok(&Http1::connect(bad.address).await.get("/").await, "/ ");
    let bound = bed.bound(|bound| bound.get(&bad).is_some_and(|bind| bind.error().is_none())).await;
    assert!(!bound.is_lost());
}

#[tokio::test]
async fn a_port_shared_by_another_process_counts_as_in_use() {
    let other = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    other.set_reuse_address(true).unwrap();
    other.set_reuse_port(true).unwrap();
    other.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    other.listen(1).unwrap();
    let key = http(&other.local_addr().unwrap().as_socket().unwrap().to_string());
    let bed = Bed::start(&[key]).await;
    let bound = bed.bound(|bound| bound.get(&key).is_some_and(|bind| bind.error().is_some())).await;
    assert_eq!(bound.get(&key).unwrap().threads(), 0);
    drop(other);
    // Connections that ended recently do not block the address.
    assert_ok(&Http1::connect(bed.address(key).await).await.get("/").await, "/ ");
    bed.drain(std::time::Duration::ZERO).await;
    let again = Bed::start(&[key]).await;
    assert_eq!(again.address(key).await, key.address);
}

#[tokio::test]
async fn a_failed_bind_is_not_retried_at_every_publication() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (good, bad) = (http("127.0.0.1:0"), http(&taken.local_addr().unwrap().to_string()));
    let mut bed = Bed::start(&[good, bad]).await;
    bed.bound(|bound| bound.get(&bad).is_some_and(|bind| bind.error().is_some())).await;
    for _ in 0..300 {
        bed.publish();
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    assert!(bed.metric("tidegate_bind_failures_total", None) < 100.0);
}

#[tokio::test]
async fn the_loss_of_every_bind_is_reported() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let bad = https(&taken.local_addr().unwrap().to_string());
    let bed = Bed::start(&[bad]).await;
    bed.bound(tidegate_proxy::Bound::is_lost).await;
}

#[tokio::test]
async fn an_unspecified_ipv6_address_accepts_ipv4_too() {
    // Some machines have no IPv6.
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return skipped("ipv6", "there is no IPv6");
    }
    let key = http("[::]:0");
    let bed = Bed::start(&[key]).await;
    let port = bed.address(key).await.port();
    for address in ["127.0.0.1", "::1"] {
        let mut client = connect(address, port).await;
        assert_ok(&client.get("/").await, "/ ");
    }
}

async fn connect(address: &str, port: u16) -> Http1<TcpStream> {
    let address = (address.parse::<IpAddr>().unwrap(), port).into();
    tokio::time::timeout(PATIENCE, Http1::connect(address)).await.unwrap()
}

/// The kernel shows such a client as `::ffff:127.0.0.1`, which is in no range of IPv4 addresses.
#[tokio::test]
async fn an_ipv4_mapped_client_address_is_unmapped() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return skipped("ipv6", "there is no IPv6");
    }
    let key = http("[::]:0");
    let mut bed = Bed::start(&[key]).await;
    let port = bed.address(key).await.port();
    let before = bed.parts.hosts.shared().get(&HostPattern::Any).unwrap();
    let allowed = Guard::AllowSources(["127.0.0.0/8".parse().unwrap()].into());
    let guarded = Route { guards: [allowed].into(), ..Route::clone(before.fallback().unwrap()) };
    let routes = HostRoutes::new(HostPattern::Any, Vec::new(), Some(Arc::new(guarded)));
    bed.parts.hosts.insert(&HostPattern::Any.into(), Arc::new(routes));
    bed.publish();
    let told = connect("127.0.0.1", port).await.get("/told").await;
    assert_ok(&told, "x-forwarded-for: 127.0.0.1; x-forwarded-port: 80; x-real-ip: 127.0.0.1");
    assert!(connect("::1", port).await.get("/told").await.starts_with("HTTP/1.1 403 "));
    // As a trusted proxy it is recognised by that address as well.
    bed.parts.trusted_proxies = ["127.0.0.1/32".parse().unwrap()].into();
    bed.publish();
    let mut client = connect("127.0.0.1", port).await;
    client.send("GET /told HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 127.8.8.8\r\n\r\n").await;
    let told = client.response().await.unwrap();
    assert_ok(&told, "x-forwarded-for: 127.8.8.8, 127.0.0.1; x-forwarded-port: 80; x-real-ip: 127.8.8.8");
}

#[tokio::test]
async fn the_audit_repairs_and_counts_missed_changes_of_binds() {
    let (kept, gone, come) = (http("127.0.0.1:0"), http("127.0.0.2:0"), http("127.0.0.3:0"));
    let mut bed = Bed::with(&[kept, gone], |options| options.audit = Duration::from_millis(20)).await;
    let (address, old) = (bed.address(kept).await, bed.address(gone).await);
    let mut client = Http1::connect(address).await;
    assert_ok(&client.get("/1").await, "/1 ");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(bed.metric("tidegate_bind_drift_total", None), 0.0, "nothing has drifted");

    bed.listen_unsaid(&[kept, come]);
    assert_ok(&Http1::connect(bed.address(come).await).await.get("/2").await, "/2 ");
    no_listener(old).await;
    bed.until_metric("tidegate_bind_drift_total", None, 4.0).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(bed.metric("tidegate_bind_drift_total", None), 4.0, "one closed and one opened, on two threads");
    assert_ok(&client.get("/3").await, "/3 ");
    assert_eq!(bed.address(kept).await, address);
}

/// A bug in other code that handles descriptors may close a socket without our knowledge.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_socket_that_stopped_listening_is_reopened() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let key = http(&free.to_string());
    let bed = Bed::with(&[key], |options| options.audit = Duration::from_millis(20)).await;
    let address = bed.address(key).await;
    assert_ok(&Http1::connect(address).await.get("/1").await, "/1 ");
    let Ok(deaf) = deafen(address) else {
        return skipped("pidfd_getfd", "descriptors cannot be copied here");
    };
    assert_eq!(deaf, 2, "each thread has a socket");
    bed.until_metric("tidegate_bind_drift_total", None, 2.0).await;
    assert_eq!(bed.address(key).await, address);
    assert_ok(&Http1::connect(address).await.get("/2").await, "/2 ");
    assert_eq!(bed.metric("tidegate_bind_drift_total", None), 2.0);
}

/// Ends every socket of this process that listens on an address, and leaves its descriptor open; returns their number.
#[cfg(target_os = "linux")]
fn deafen(address: std::net::SocketAddr) -> std::io::Result<usize> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let process = pidfd_open(getpid(), PidfdFlags::empty())?;
    let mut deaf = 0;
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let Some(descriptor) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let copy = match pidfd_getfd(&process, descriptor, PidfdGetfdFlags::empty()) {
            // The descriptor of the folder itself is closed by now, or another test has closed one.
            Err(rustix::io::Errno::BADF) => continue,
            copy => socket2::Socket::from(copy?),
        };
        let here = copy.local_addr().ok().and_then(|at| at.as_socket()) == Some(address);
        if here && copy.is_listener().unwrap_or(false) {
            copy.shutdown(std::net::Shutdown::Both)?;
            deaf += 1;
        }
    }
    Ok(deaf)
}
