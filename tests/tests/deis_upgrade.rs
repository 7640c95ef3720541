//! A rolling update of `deploy/deis`: each replica has the environment of its container, and gets its requests from a
//! load balancer that notices terminating replicas late. No request is lost, nor is a running `git push`.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tidegate_tests::cluster::Steady;
use tidegate_tests::{Dev, binary, eventually, get};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::watch;

const HOST: &str = "blog.apps.localhost";
const ROUTER: &str = include_str!("../../examples/deis/router.yaml");
const BLOG: &str = include_str!("../../examples/deis/blog.yaml");
const BUILDER: &str = include_str!("../../examples/deis/builder.yaml");
const DEPLOYMENT: &str = include_str!("../../deploy/deis/deployment.yaml");

/// The time that the load balancer continues to send connections to a terminating replica: less than the delay below,
/// as the manifest's 15 seconds are more than a load balancer takes.
const NOTICED: Duration = Duration::from_secs(1);

/// The variables that differ from the manifest's here: its addresses, and the times of its shutdown.
const OWN: [(&str, &str); 9] = [
    ("TIDEGATE_HTTP", "127.0.0.1:0"),
    ("TIDEGATE_HTTPS", "off"),
    ("TIDEGATE_ADMIN", "127.0.0.1:0"),
    ("TIDEGATE_DEIS_BUILDER_ADDRESS", "127.0.0.1:0"),
    ("TIDEGATE_DEBUG", "off"),
    ("TIDEGATE_LOG_FORM", "json"),
    ("TIDEGATE_ALLOW_LOOPBACK_ENDPOINTS", "true"),
    ("TIDEGATE_SHUTDOWN_DELAY", "3s"),
    ("TIDEGATE_GRACE", "10s"),
];

/// A replica.
struct Pod {
    child: Child,
    http: SocketAddr,
    builder: SocketAddr,
    admin: SocketAddr,
}

fn spec() -> Value {
    let deployment: Value = serde_saphyr::from_str(DEPLOYMENT).unwrap();
    deployment["spec"].clone()
}

impl Pod {
    /// Starts one, and waits until it is ready.
    async fn start(dev: &Dev) -> Self {
        let container = &spec()["template"]["spec"]["containers"][0];
        let mut command = Command::new(binary());
        command.args(container["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap()));
        for variable in container["env"].as_array().unwrap() {
            if let (Some(name), Some(value)) = (variable["name"].as_str(), variable["value"].as_str()) {
                command.env(name, value);
            }
        }
        command.envs(OWN).env("TIDEGATE_KUBECONFIG", &dev.kubeconfig);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let (mut http, mut builder, mut admin) = (None, None, None);
        let read = async {
            while http.is_none() || builder.is_none() || admin.is_none() {
                let line = log.next_line().await.unwrap().expect("a line about each socket");
                let line: Value = serde_json::from_str(&line).unwrap();
                let address = |field: &str| line[field].as_str().and_then(|text| text.parse().ok());
                match line["protocol"].as_str() {
                    Some("Http") => http = address("address"),
                    Some("Tcp") => builder = address("address"),
                    _ => admin = admin.or_else(|| address("admin")),
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), read).await.expect("its sockets");
        // Unread output would fill the pipe.
        tokio::spawn(async move { while log.next_line().await.is_ok_and(|line| line.is_some()) {} });
        let pod = Self { child, http: http.unwrap(), builder: builder.unwrap(), admin: admin.unwrap() };
        eventually("ready", || async {
            let answer = get(pod.admin, "localhost", "/readyz").await?;
            if answer.status == 200 { Ok(()) } else { Err(answer.body) }
        })
        .await;
        pod
    }

    async fn term(&self) {
        let term = Command::new("kill").arg(self.child.id().unwrap().to_string()).status().await.unwrap();
        assert!(term.success());
    }

    /// Waits for its end.
    async fn ended(mut self) {
        let end = tokio::time::timeout(Duration::from_secs(60), self.child.wait()).await.expect("an end").unwrap();
        assert!(end.success(), "{end}");
    }
}

/// Forwards connections to the targets in turn, as the load balancer of a Service does.
async fn load_balancer(targets: watch::Receiver<Vec<SocketAddr>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let turn = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let target = {
                let targets = targets.borrow();
                targets[turn.fetch_add(1, Ordering::Relaxed) % targets.len()]
            };
            tokio::spawn(async move {
                let mut edge = TcpStream::connect(target).await?;
                tokio::io::copy_bidirectional(&mut client, &mut edge).await
            });
        }
    });
    address
}

/// Sends requests on a new connection each time, until it is stopped; returns their number.
async fn visits(address: SocketAddr, stop: watch::Receiver<bool>) -> Result<u64, String> {
    let mut count = 0;
    while !*stop.borrow() {
        let answer = get(address, HOST, "/visit").await?;
        if answer.status != 200 {
            return Err(format!("{answer:?}"));
        }
        count += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(count)
}

/// Sends something slowly over a connection, one piece per signal; returns the response.
async fn slowly(address: SocketAddr, pieces: [&'static str; 2], mut go_on: watch::Receiver<bool>) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(pieces[0].as_bytes()).await.unwrap();
    go_on.wait_for(|go_on| *go_on).await.unwrap();
    stream.write_all(pieces[1].as_bytes()).await.unwrap();
    let mut back = String::new();
    stream.read_to_string(&mut back).await.unwrap();
    back
}

#[test]
fn the_manifest_leaves_time_for_requests_in_flight() {
    let spec = spec();
    let pod = &spec["template"]["spec"];
    let variables = pod["containers"][0]["env"].as_array().unwrap();
    let seconds = |name: &str| {
        let value = variables.iter().find(|variable| variable["name"] == name).unwrap()["value"].as_str().unwrap();
        value.strip_suffix('s').unwrap().parse::<u64>().unwrap()
    };
    let ends = seconds("TIDEGATE_SHUTDOWN_DELAY") + seconds("TIDEGATE_GRACE");
    assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() >= ends + 10);
    assert_eq!(spec["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
    assert!(spec["replicas"].as_u64().unwrap() >= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_update_loses_no_request() {
    let files = [("router.yaml", ROUTER), ("blog.yaml", BLOG), ("builder.yaml", BUILDER)];
    let dev = Dev::with(&files, &["--source", "deis", "--deis-builder-address", "off"]).await;
    let mut old = vec![Pod::start(&dev).await, Pod::start(&dev).await];
    let addresses = |pods: &[Pod]| pods.iter().map(|pod| pod.http).collect::<Vec<_>>();
    let (http, targets) = watch::channel(addresses(&old));
    let http_address = load_balancer(targets).await;
    let steady = Steady::start(http_address, HOST, "/");
    let (stop, stopped) = watch::channel(false);
    let visits = tokio::spawn(visits(http_address, stopped));

    let mut new: Vec<Pod> = Vec::new();
    while !old.is_empty() {
        new.push(Pod::start(&dev).await);
        let leaving = old.remove(0);
        let staying = || [addresses(&old), addresses(&new)].concat();
        http.send_replace([&[leaving.http][..], &staying()].concat());
        // An upload, and a connection to the builder, that have begun at the terminating replica.
        let (went, goes_on) = watch::channel(false);
        let upload =
            ["POST / HTTP/1.1\r\nHost: blog.apps.localhost\r\nConnection: close\r\nContent-Length: 4\r\n\r\nab", "cd"];
        let upload = tokio::spawn(slowly(leaving.http, upload, goes_on.clone()));
        let push = ["GET /push HTTP/1.1\r\nHost: builder\r\n", "Connection: close\r\n\r\n"];
        let push = tokio::spawn(slowly(leaving.builder, push, goes_on));
        tokio::time::sleep(Duration::from_millis(200)).await;
        leaving.term().await;
        tokio::time::sleep(NOTICED).await;
        http.send_replace(staying());
        // After the delay, when it no longer listens.
        tokio::time::sleep(Duration::from_secs(3)).await;
        TcpStream::connect(leaving.http).await.unwrap_err();
        went.send_replace(true);
        let (upload, push) = (upload.await.unwrap(), push.await.unwrap());
        assert!(upload.starts_with("HTTP/1.1 200"), "{upload}");
        assert!(push.starts_with("HTTP/1.1 200") && push.contains("deis-builder"), "{push}");
        leaving.ended().await;
    }
    stop.send_replace(true);
    let (steady, visits) = (steady.stop().await.all(), visits.await.unwrap().unwrap());
    assert!(visits > 100, "{visits}");
    println!("{steady} requests on kept connections and {visits} on new ones");
}
