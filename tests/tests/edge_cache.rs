//! The cluster cache on disk: a restart while the API server is unavailable serves the kept state, and changes made
//! meanwhile take effect when it is back. The folder may be damaged in any way.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use http_body_util::Empty;
use rcgen::{KeyPair, PKCS_ED25519};
use serde_json::json;
use tempfile::TempDir;
use tidegate_tests::{Dev, Issuer, Link, Run, certificate_of, eventually, get, request, secret, skipped, upstream};
use tokio::net::UdpSocket;
use tokio::process::Command;

const SHOP: &str = include_str!("manifests/shop.yaml");
/// A route for `kept.test` to a loopback port without a Deployment.
const KEPT: &str = include_str!("manifests/kept.yaml");

/// A cluster behind a link, and a folder for the cache of an edge.
struct Site {
    dev: Dev,
    link: Link,
    kubeconfig: std::path::PathBuf,
    cache: TempDir,
}

impl Site {
    async fn new(files: &[(&str, &str)]) -> Self {
        let dev = Dev::start(files).await;
        let link = Link::to(&dev.kubeconfig).await;
        let kubeconfig = link.kubeconfig(&dev.kubeconfig);
        let cache = tempfile::tempdir().unwrap();
        std::fs::write(cache.path().join("key"), [7; 32]).unwrap();
        Self { dev, link, kubeconfig, cache }
    }

    /// An edge with a cache, with or without a key for Secrets.
    async fn edge(&self, sealed: bool) -> Run {
        self.edge_by(Command::new(tidegate_tests::binary()), sealed).await
    }

    /// The same, for a command that begins with the program.
    async fn edge_by(&self, command: Command, sealed: bool) -> Run {
        self.edge_with(command, sealed, &[]).await
    }

    /// The same with further flags.
    async fn edge_with(&self, command: Command, sealed: bool, flags: &[&str]) -> Run {
        let folder = self.cache.path().to_str().unwrap();
        let key = self.cache.path().join("key");
        let mut arguments = vec!["--https", "127.0.0.1:0", "--cache-dir", folder, "--cache-write-after", "50ms"];
        if sealed {
            arguments.extend(["--cache-key-file", key.to_str().unwrap()]);
        }
        arguments.extend(flags);
        Run::started(command, &self.kubeconfig, &arguments).await
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.dev.folder().join(file), text).unwrap();
    }
}

/// The sum of a metric over its series; 0 if there is none.
fn sum(metrics: &str, name: &str) -> f64 {
    let lines = metrics.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Waits until all listed objects are on disk.
async fn kept(run: &Run) {
    eventually("all is written", || async {
        let metrics = run.metrics().await;
        let of = |name: &str| sum(&metrics, name);
        let listed = of("tidegate_listed_objects");
        let done =
            listed > 0.0 && of("tidegate_cache_values_total") > listed && of("tidegate_cache_pending_values") < 1.0;
        if done { Ok(()) } else { Err(metrics) }
    })
    .await;
}

async fn kill(mut run: Run) {
    run.signal("-KILL").await;
    run.child.wait().await.unwrap();
}

async fn verbose(run: &Run) -> String {
    get(run.admin, "localhost", "/readyz?verbose").await.unwrap().body
}

async fn fresh(run: &Run) {
    eventually("what serves is as it is now", || async {
        let (text, metrics) = (verbose(run).await, run.metrics().await);
        let stale = text.contains("stale:") || sum(&metrics, "tidegate_cache_stale_since_timestamp_seconds") > 0.0;
        if stale || text.contains("not synced") { Err(text) } else { Ok(()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_without_the_api_server_serves_the_stored_state() {
    let to_kept = KEPT.replace("PORT", &upstream().await.port().to_string());
    let secured = to_kept.replace("  rules:\n", "  tls: [{hosts: [kept.test], secretName: cert}]\n  rules:\n");
    let (cert, certificate) = secret("kept", "cert", "kept.test");
    let mut site = Site::new(&[("shop.yaml", SHOP), ("kept.yaml", &secured), ("cert.yaml", &cert)]).await;
    let run = site.edge(true).await;
    run.ready().await;
    run.answers("kept.test", 200).await;
    assert_eq!(certificate_of(run.https.unwrap(), "kept.test").await.unwrap(), certificate);
    kept(&run).await;
    let bytes = sum(&run.metrics().await, "tidegate_cache_written_bytes_total");
    assert!(bytes > 0.0, "{bytes}");
    let inner = site.cache.path().join("cluster-cache");
    for (path, mode) in [(inner.clone(), 0o700), (inner.join("objects.redb"), 0o600)] {
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, mode, "{}", path.display());
    }

    site.link.cut();
    kill(run).await;
    let run = site.edge(true).await;
    run.ready().await;
    let answer = get(run.http, "kept.test", "/").await.unwrap();
    assert_eq!((answer.status.as_u16(), &*answer.body), (200, "kept"), "ready means right");
    assert_eq!(certificate_of(run.https.unwrap(), "kept.test").await.unwrap(), certificate);
    run.answers("shop.test", 200).await;
    let (text, metrics) = (verbose(&run).await, run.metrics().await);
    assert!(
        text.contains("stale: serving the state kept on disk, as of 2") && text.contains("degraded: true"),
        "{text}"
    );
    assert!(sum(&metrics, "tidegate_cache_stale_since_timestamp_seconds") > 0.0, "{metrics}");

    // Changes made meanwhile: one host is deleted, one created, and the certificate is replaced.
    let (cert, renewed) = secret("kept", "cert", "kept.test");
    site.write("shop.yaml", &SHOP.replace("shop.test", "renamed.test"));
    site.write("cert.yaml", &cert);
    eventually("the cluster has it", || async {
        let answer = get(site.dev.http, "renamed.test", "/").await?;
        if answer.status == 200 { Ok(()) } else { Err(answer.status.to_string()) }
    })
    .await;
    run.answers("shop.test", 200).await;
    run.answers("renamed.test", 404).await;

    site.link.mend();
    run.answers("renamed.test", 200).await;
    run.answers("shop.test", 404).await;
    run.answers("kept.test", 200).await;
    eventually("the new certificate", || async {
        let shown = certificate_of(run.https.unwrap(), "kept.test").await?;
        if shown == renewed { Ok(()) } else { Err("the old one".to_owned()) }
    })
    .await;
    fresh(&run).await;
    let metrics = run.metrics().await;
    assert!(sum(&metrics, "tidegate_lists_total") < 1.0, "watches went on from what was kept: {metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_stored_version_causes_a_list_and_a_comparison() {
    let to_kept = KEPT.replace("PORT", &upstream().await.port().to_string());
    let mut site = Site::new(&[("shop.yaml", SHOP), ("kept.yaml", &to_kept)]).await;
    let run = site.edge(true).await;
    run.answers("kept.test", 200).await;
    run.answers("shop.test", 200).await;
    kept(&run).await;
    site.link.cut();
    kill(run).await;

    // It is replaced by one whose versions are lower than the kept ones.
    let api = site.link.server().to_string();
    site.dev.signal("-TERM").await;
    site.dev.ended().await;
    let other = to_kept.replace("kept.test", "other.test");
    site.dev = Dev::with(&[("kept.yaml", &other)], &["--api", &api]).await;
    site.kubeconfig = site.link.kubeconfig(&site.dev.kubeconfig);
    let run = site.edge(true).await;
    run.ready().await;
    run.answers("kept.test", 200).await;
    site.link.mend();
    run.answers("other.test", 200).await;
    run.answers("kept.test", 404).await;
    run.answers("shop.test", 404).await;
    fresh(&run).await;
    assert!(sum(&run.metrics().await, "tidegate_lists_total") > 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_no_secret_is_stored_and_plain_hosts_serve() {
    let to_kept = KEPT.replace("PORT", &upstream().await.port().to_string());
    let secured = to_kept.replace("  rules:\n", "  tls: [{hosts: [kept.test], secretName: cert}]\n  rules:\n");
    let (cert, certificate) = secret("kept", "cert", "kept.test");
    let mut site = Site::new(&[("shop.yaml", SHOP), ("kept.yaml", &secured), ("cert.yaml", &cert)]).await;
    let run = site.edge(false).await;
    run.answers("shop.test", 200).await;
    eventually("all but Secrets is written", || async {
        let metrics = run.metrics().await;
        let of = |name: &str| sum(&metrics, name);
        let listed = of("tidegate_listed_objects") - 1.0;
        let done =
            listed > 0.0 && of("tidegate_cache_values_total") > listed && of("tidegate_cache_pending_values") < 1.0;
        if done { Ok(()) } else { Err(metrics) }
    })
    .await;
    let file = std::fs::read(site.cache.path().join("cluster-cache/objects.redb")).unwrap();
    let holds = |text: &str| file.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("shop.test") && !holds("tls.key"), "the file holds routes and no key");

    site.link.cut();
    kill(run).await;
    let run = site.edge(false).await;
    run.ready().await;
    run.answers("shop.test", 200).await;
    assert_ne!(certificate_of(run.https.unwrap(), "kept.test").await.ok(), Some(certificate.clone()));
    site.link.mend();
    eventually("the certificate", || async {
        let shown = certificate_of(run.https.unwrap(), "kept.test").await?;
        if shown == certificate { Ok(()) } else { Err("another one".to_owned()) }
    })
    .await;
}

/// Checks that an edge serves with a damaged folder, and whether it uses it.
async fn check_spoilt(site: &Site, usable: bool, spoil: impl AsyncFnOnce(&Path)) {
    let inner = site.cache.path().join("cluster-cache");
    drop(std::fs::remove_dir_all(&inner));
    std::fs::write(site.cache.path().join("key"), [7; 32]).unwrap();
    let mut run = site.edge(true).await;
    run.ready().await;
    kept(&run).await;
    run.signal("-TERM").await;
    assert_eq!(run.child.wait().await.unwrap().code(), Some(0));

    spoil(&inner).await;
    let run = site.edge(true).await;
    run.ready().await;
    run.answers("kept.test", 200).await;
    eventually("whether it is used", || async {
        let used = sum(&run.metrics().await, "tidegate_cache_usable") > 0.0;
        if used == usable { Ok(()) } else { Err(format!("used: {used}")) }
    })
    .await;
    kill(run).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_folder_does_not_prevent_serving() {
    let to_kept = KEPT.replace("PORT", &upstream().await.port().to_string());
    let site = Site::new(&[("kept.yaml", &to_kept)]).await;
    let key = site.cache.path().join("key");
    // An intact folder.
    check_spoilt(&site, true, async |_| {}).await;
    // Another key, a missing key, and an invalid key.
    check_spoilt(&site, false, async |_| std::fs::write(&key, [8; 32]).unwrap()).await;
    check_spoilt(&site, false, async |_| std::fs::remove_file(&key).unwrap()).await;
    check_spoilt(&site, false, async |_| std::fs::write(&key, "short").unwrap()).await;
    // A truncated file, an empty one, and one of another format: the cache starts over.
    let file = |inner: &Path| inner.join("objects.redb");
    for cut in [0, 100, 4096, 5000, 65_536] {
        check_spoilt(&site, true, async |inner| {
            let file = std::fs::File::options().write(true).open(file(inner)).unwrap();
            file.set_len(cut).unwrap();
        })
        .await;
    }
    check_spoilt(&site, true, async |inner| std::fs::write(file(inner), "no such thing").unwrap()).await;
    // A folder in place of the file, and a file in place of the folder.
    check_spoilt(&site, false, async |inner| {
        std::fs::remove_file(file(inner)).unwrap();
        std::fs::create_dir(file(inner)).unwrap();
    })
    .await;
    check_spoilt(&site, false, async |inner| {
        std::fs::remove_dir_all(inner).unwrap();
        std::fs::write(inner, "a file").unwrap();
    })
    .await;
    std::fs::remove_file(site.cache.path().join("cluster-cache")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_on_the_same_folder_serves_without_a_cache() {
    let to_kept = KEPT.replace("PORT", &upstream().await.port().to_string());
    let site = Site::new(&[("kept.yaml", &to_kept)]).await;
    let first = site.edge(true).await;
    first.ready().await;
    kept(&first).await;
    let second = site.edge(true).await;
    second.ready().await;
    second.answers("kept.test", 200).await;
    assert!(sum(&second.metrics().await, "tidegate_cache_usable") < 1.0);
    assert!(sum(&first.metrics().await, "tidegate_cache_usable") > 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_disables_only_the_cache() {
    let to_kept = KEPT.replace("PORT", &upstream().await.port().to_string());
    let site = Site::new(&[("kept.yaml", &to_kept)]).await;
    let folder = site.cache.path().to_str().unwrap().to_owned();
    // No file may be longer than 64 KiB: for the process, that is like a full disk of that size.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 128; exec \"$0\" \"$@\""]).arg(tidegate_tests::binary());
    let run = Run::started(shell, &site.kubeconfig, &["--https", "off", "--cache-dir", &folder]).await;
    run.ready().await;
    run.answers("kept.test", 200).await;
    eventually("the cache is given up", || async {
        let metrics = run.metrics().await;
        if sum(&metrics, "tidegate_cache_usable") < 1.0 { Ok(()) } else { Err(metrics) }
    })
    .await;
    site.write("kept.yaml", &to_kept.replace("kept.test", "later.test"));
    run.answers("later.test", 200).await;
    run.answers("kept.test", 404).await;
}

/// The program in a mount namespace of its own, after a shell command with `$0` as its first argument. `None`, with one
/// printed line, for users without the right to mount.
fn mounted(script: &str, argument: &Path) -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        skipped("root", "it takes root to mount");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &format!("{script} && exec \"$@\"")]).arg(argument);
    command.arg(tidegate_tests::binary());
    Some(command)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_folder_disables_the_cache_and_keeps_its_content() {
    let to_kept = KEPT.replace("PORT", &upstream().await.port().to_string());
    let mut site = Site::new(&[("kept.yaml", &to_kept)]).await;
    let script = r#"mount --bind "$0" "$0" && mount -o remount,ro,bind "$0""#;
    let Some(command) = mounted(script, site.cache.path()) else { return };
    let mut run = site.edge(true).await;
    run.answers("kept.test", 200).await;
    kept(&run).await;
    run.signal("-TERM").await;
    run.child.wait().await.unwrap();

    let run = site.edge_by(command, true).await;
    run.ready().await;
    run.answers("kept.test", 200).await;
    assert!(sum(&run.metrics().await, "tidegate_cache_usable") < 1.0);
    site.write("kept.yaml", &to_kept.replace("kept.test", "later.test"));
    run.answers("later.test", 200).await;
    kill(run).await;

    site.link.cut();
    let run = site.edge(true).await;
    run.ready().await;
    run.answers("kept.test", 200).await;
    run.answers("later.test", 404).await;
    site.link.mend();
    run.answers("later.test", 200).await;
}

/// Answers every address query (RFC 1035) with 127.0.0.1, for a minute, until it is dropped.
async fn name_server(address: &str) -> tokio::task::JoinHandle<()> {
    let socket = UdpSocket::bind(address).await.unwrap();
    tokio::spawn(async move {
        let mut question = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut question).await {
            let Some(name) = question[12..length].iter().position(|byte| *byte == 0) else { continue };
            let asked = &question[12..12 + name + 5];
            let a = asked[asked.len() - 4..] == [0, 1, 0, 1];
            let header = [question[0], question[1], 0x81, 0x80, 0, 1, 0, u8::from(a), 0, 0, 0, 0];
            let record: &[u8] = if a { &[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1] } else { &[] };
            drop(socket.send_to(&[&header, asked, record].concat(), client).await);
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dns_name_keeps_its_addresses_across_a_restart() {
    let port = upstream().await.port().to_string();
    let named = "apiVersion: v1\nkind: Namespace\nmetadata: {name: kept}\n---\napiVersion: v1\nkind: Service\n\
                 metadata: {namespace: kept, name: kept}\nspec: {type: ExternalName, externalName: far.example, ports: [{port: PORT}]}\n---\n";
    let ingress = KEPT.split("---\n").last().unwrap().replace("number: 80", "number: PORT");
    let site = Site::new(&[("kept.yaml", &format!("{named}{ingress}").replace("PORT", &port))]).await;
    let resolv = site.cache.path().join("resolv.conf");
    std::fs::write(&resolv, "nameserver 127.0.53.53\noptions timeout:1 attempts:1\n").unwrap();
    let script = r#"mount --bind "$0" /etc/resolv.conf"#;
    let command = || mounted(script, &resolv);
    let Some(first) = command() else { return };
    let server = name_server("127.0.53.53:53").await;
    let mut run = site.edge_by(first, false).await;
    run.answers("kept.test", 200).await;
    run.signal("-TERM").await;
    run.child.wait().await.unwrap();

    server.abort();
    drop(server.await);
    site.link.cut();
    let run = site.edge_by(command().unwrap(), false).await;
    run.ready().await;
    let answer = get(run.http, "kept.test", "/").await.unwrap();
    assert_eq!((answer.status.as_u16(), &*answer.body), (200, "kept"), "ready means right");
}

/// The policy, and the keys of the issuer, are those of before the restart.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_accepted_after_a_restart_without_their_issuer() {
    let issuer = Issuer::start().await;
    let spec = json!({
        "targetRef": {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "none"},
        "rules": {"authentication": {"staff": {"jwt": {"issuerUrl": issuer.url}}}},
    });
    let metadata = json!({"namespace": "kept", "name": "staff"});
    let policy = json!({"apiVersion": "kuadrant.io/v1", "kind": "AuthPolicy", "metadata": metadata, "spec": spec});
    let named = "kind: Ingress\nmetadata: {namespace: kept, name: kept, annotations: {tidegate.io/policy: staff}}";
    let kept_route = KEPT.replace("PORT", &upstream().await.port().to_string());
    let guarded = kept_route.replace("kind: Ingress\nmetadata: {namespace: kept, name: kept}", named);
    assert_ne!(guarded, kept_route);
    let site = Site::new(&[("kept.yaml", &guarded), ("policy.yaml", &policy.to_string())]).await;
    let sources = ["--source", "ingress,kuadrant"];
    let edge = async || site.edge_with(Command::new(tidegate_tests::binary()), true, &sources).await;
    let run = edge().await;
    run.ready().await;
    let (token, later) = (issuer.token("one", &json!({})), issuer.token("one", &json!({"sub": "ben"})));
    let other = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let forged = issuer.token_by(&other, "one", &json!({}));
    let status = async |run: &Run, token: &str| {
        let asks =
            http::Request::get("/").header("host", "kept.test").header("authorization", format!("Bearer {token}"));
        request(run.http, asks.body(Empty::new()).unwrap()).await.unwrap().status.as_u16()
    };
    eventually("the keys are fetched", || async {
        let status = status(&run, &token).await;
        if status == 200 { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    kept(&run).await;

    drop(issuer);
    kill(run).await;
    let run = edge().await;
    run.ready().await;
    assert_eq!([status(&run, &later).await, status(&run, &forged).await, status(&run, "").await], [200, 401, 401]);
    kill(run).await;
    // Nor is the API server needed.
    site.link.cut();
    let run = site.edge_with(Command::new(tidegate_tests::binary()), true, &sources).await;
    run.ready().await;
    assert_eq!([status(&run, &later).await, status(&run, &forged).await, status(&run, "").await], [200, 401, 401]);
}
