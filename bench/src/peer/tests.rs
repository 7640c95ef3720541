//! Tests that proxies do the same work. Those that are not installed are skipped by name.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::Parser as _;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Args, Change, HTTPS, Kind, Route, SECURE, STREAMED, Target, Work, choose};
use crate::cores::Share;
use crate::grpc::{Held, Seen};
use crate::tls;
use crate::upstream::{PODS, Upstream};

#[path = "../../../tests/src/skip.rs"]
mod skip;
use skip::skipped;

#[derive(clap::Parser, Debug)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

/// The number of requests that fill the buffers of every access log.
const REQUESTS: usize = 400;
const TOLD: [&str; 6] =
    ["x-forwarded-for", "x-forwarded-host", "x-forwarded-port", "x-forwarded-proto", "x-real-ip", "x-request-id"];

/// Responds to each request with its own head.
async fn mirror() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                // A request of these tests arrives in one piece.
                let mut head = vec![0; 8192];
                while let Ok(count @ 1..) = stream.read(&mut head).await {
                    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {count}\r\n\r\n");
                    let answer = [answer.as_bytes(), &head[..count]].concat();
                    stream.write_all(&answer).await.unwrap();
                }
            });
        }
    });
    address
}

/// The last response of this number of requests to a host.
async fn ask(address: SocketAddr, host: &str, times: usize) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut answer = vec![0; 16384];
    let mut count = 0;
    for _ in 0..times {
        stream.write_all(format!("GET /path?query HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await.unwrap();
        count = 0;
        // Head and mirrored head end with an empty line each; a refusal has no second one.
        while String::from_utf8_lossy(&answer[..count]).matches("\r\n\r\n").count() < 2 {
            count += stream.read(&mut answer[count..]).await.unwrap();
            if answer.starts_with(b"HTTP/1.1 404") {
                break;
            }
        }
    }
    String::from_utf8_lossy(&answer[..count]).to_ascii_lowercase()
}

/// The results of gRPC streams that are held meanwhile.
async fn held(secure: SocketAddr, meanwhile: impl Future<Output = ()>) -> Seen {
    let (streams, stop) = (Held::open(secure, STREAMED).await.unwrap(), CancellationToken::new());
    let working = async {
        meanwhile.await;
        stop.cancel();
    };
    tokio::join!(streams.hold(&stop), working).0
}

async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..3000 {
        if let Some(found) = look().await {
            return found;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}");
}

/// Skips the proxies that the machine lacks.
fn note(left_out: &[String]) {
    for one in left_out {
        skipped(one.split(':').next().unwrap_or_default(), one);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_and_logs_see_the_same_from_every_proxy() {
    let args = Cli::parse_from(["", "--peers", "nginx,haproxy,envoy", "--work", "same,bare"]).args;
    let (choices, left_out) = choose(&args).unwrap();
    note(&left_out);
    if choices.is_empty() {
        return;
    }
    let mut upstream = Upstream::start(Share::ANY).await.unwrap();
    let pods = upstream.pods();
    let routes = [
        Route::new("roll.example", Target::Rolled),
        Route::new("a.example", Target::Right),
        Route::new(SECURE, Target::Right),
        Route::new(HTTPS, Target::Https),
    ];
    let real = std::mem::replace(&mut upstream.http, mirror().await);
    for choice in choices {
        let name = choice.name();
        let mut peer = choice.start(&args, Share::ANY, &upstream, &routes).await.unwrap();
        let told = ask(peer.address(), "A.example:80", REQUESTS).await;
        for header in TOLD {
            // Envoy has no option to leave the scheme out.
            let want = choice.work == Work::Same || (choice.kind == Kind::Envoy && header == "x-forwarded-proto");
            assert_eq!(told.contains(&format!("\r\n{header}: ")), want, "{name}, {header}: {told}");
        }
        if choice.work == Work::Same {
            // Envoy puts an address of the machine into X-Forwarded-For if a client is on loopback.
            assert!(told.contains("\r\nx-real-ip: 127.0.0.1\r\n"), "{name}: {told}");
            let path = peer.log_path();
            let line = eventually("a line of the log", async || {
                std::fs::read_to_string(&path).ok()?.lines().next().map(str::to_owned)
            })
            .await;
            let line: Value = serde_json::from_str(&line).unwrap_or_else(|why| panic!("{name}: {why}: {line}"));
            assert_eq!((&line["method"], &line["status"]), (&"GET".into(), &200.into()), "{name}: {line}");
        }
        let stream = TcpStream::connect(peer.secure_address()).await.unwrap();
        let stream = tls::connector(&[b"h2"]).connect(SECURE.try_into().unwrap(), stream).await.unwrap();
        let (_, session) = stream.get_ref();
        let spoken = (session.protocol_version(), session.alpn_protocol());
        assert_eq!(spoken, (Some(rustls::ProtocolVersion::TLSv1_3), Some(&b"h2"[..])), "{name}");
        // The measured host's endpoints roll through all pods, and come back.
        assert_eq!(real, pods[0]);
        for rolls in 0..=PODS {
            let endpoints = [pods[rolls % PODS]];
            peer.change(&Change { routes: &[], endpoints: Some(&endpoints) }).await.unwrap();
        }
        eventually("an answer of a pod", async || {
            let answer = crate::poll::until_right(peer.address(), "roll.example", Duration::from_secs(5)).await;
            answer.ok()
        })
        .await;
        peer.put(&[Route::new("b.example", Target::Right)]).await.unwrap();
        eventually("a new route", async || {
            ask(peer.address(), "b.example", 1).await.starts_with("http/1.1 200").then_some(())
        })
        .await;
        peer.remove("b.example").await.unwrap();
        peer.put(&[Route::new("c.example", Target::Own)]).await.unwrap();
        eventually("a route with a service of its own", async || {
            ask(peer.address(), "c.example", 1).await.starts_with("http/1.1 200").then_some(())
        })
        .await;
        eventually("the route is gone", async || {
            ask(peer.address(), "b.example", 1).await.starts_with("http/1.1 404").then_some(())
        })
        .await;
        peer.restart().await.unwrap();
        eventually(&format!("an answer of {name} after a restart"), async || {
            TcpStream::connect(peer.address()).await.ok()?;
            ask(peer.address(), "a.example", 1).await.starts_with("http/1.1 200").then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_streams_pass_and_broken_ones_are_counted() {
    let args = Cli::parse_from(["", "--peers", "nginx,haproxy,envoy"]).args;
    let (choices, left_out) = choose(&args).unwrap();
    note(&left_out);
    if choices.is_empty() {
        return;
    }
    let upstream = Upstream::start(Share::ANY).await.unwrap();
    for choice in choices {
        let routes = [Route::new(STREAMED, Target::Grpc), Route::new("a.example", Target::Right)];
        let (name, mut peer) = (choice.name(), choice.start(&args, Share::ANY, &upstream, &routes).await.unwrap());
        let secure = peer.secure_address();
        let seen = held(secure, sleep(Duration::from_millis(300))).await;
        assert!(seen.due > 0 && seen.broken == 0 && seen.missed == 0, "{name}: {seen:?}");
        let restarting = async {
            sleep(Duration::from_millis(200)).await;
            peer.restart().await.unwrap();
            crate::poll::until_right(peer.address(), "a.example", Duration::from_secs(60)).await.unwrap();
            sleep(Duration::from_secs(1)).await;
        };
        let seen = held(secure, restarting).await;
        assert!(0 < seen.broken && seen.broken < seen.opened, "{name} broke streams and carried others: {seen:?}");
        assert!(0 < seen.missed && seen.missed < seen.due, "{name}: {seen:?}");
        let [_, answered] = &routes;
        peer.all_right(&[answered.clone(), answered.clone()]).await.unwrap();
        let unknown = peer.all_right(&[answered.clone(), Route::new("nobody.example", Target::Right)]).await;
        assert!(unknown.unwrap_err().to_string().contains("1 of 2 hosts"), "{name}");
    }
}
