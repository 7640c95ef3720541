//! `tidegate dev` as its user sees it: started on a folder, queried, changed, ended by Ctrl-C. Broader tests with
//! kubectl, HTTP/2 and TLS clients are in the workspace's `tests/`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "a test waits for another process, by the clock")]

mod bed;
mod pages;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use self::bed::{Dev, PATIENCE, app, children, eventually, get, ingress, runs};

#[test]
fn a_folder_is_served_and_followed_and_stays_unchanged() {
    let broken = format!("kind: [\n---\n{}", app(1));
    let mut dev = Dev::start(&[("app.yaml", broken), ("ingress.yaml", ingress("a.localhost"))]);
    let complaint = dev.stderr.recv_timeout(PATIENCE).expect("a complaint about the broken document");
    assert!(complaint.contains("app.yaml, document 1: "), "{complaint}");
    assert!(
        dev.said.iter().any(|line| line.contains("a.localhost") && line.contains("default/app:80")),
        "{:#?}",
        dev.said
    );

    // A request reaches the echo process.
    let (status, body) = dev.get("a.localhost", "/x?y=1");
    assert_eq!(status, 200);
    assert!(body.starts_with("pod: app-") && body.contains("\nGET /x?y=1 HTTP/1.1\n"), "{body}");
    assert_eq!(dev.get("b.localhost", "/").0, 404);

    // A changed file changes the routes, and removed objects are deleted.
    dev.write("ingress.yaml", &ingress("b.localhost"));
    eventually("b.localhost is served", || dev.get("b.localhost", "/").0 == 200);
    assert_eq!(dev.get("a.localhost", "/").0, 404);
    let (served, unserved) = (dev.explain("http://b.localhost/"), dev.explain("http://a.localhost/"));
    assert_eq!((served.status.code(), unserved.status.code()), (Some(0), Some(1)));
    assert!(String::from_utf8_lossy(&served.stdout).contains("Ingress default/app"), "{served:?}");

    let unread = dev.ask_unread(&["topology"]);
    assert!(unread.status.success() && unread.stderr.is_empty(), "a closed pipe is not an error: {unread:?}");

    // A broken file deletes nothing; a repaired one with more replicas starts them.
    dev.write("app.yaml", "kind: [\n");
    dev.write("app.yaml", &app(2));
    let mut pods = std::collections::BTreeSet::new();
    eventually("two pods answer", || {
        let (status, body) = dev.get("b.localhost", "/");
        assert_eq!(status, 200, "{body}");
        pods.insert(body.lines().next().unwrap_or_default().to_owned());
        pods.len() == 2
    });

    // The admin pages of the process.
    let admin = dev.place("health ");
    let admin = admin.trim_start_matches("http://").split('/').next().unwrap().to_owned();
    assert_eq!(get(&admin, "x", "/readyz").0, 200);
    assert_eq!(get(&admin, "x", "/healthz"), (200, "ok\n".to_owned()));
    assert!(get(&admin, "x", "/metrics").1.contains("tidegate_task_restarts_total{task=\"control\"} 0\n"));
    let debug = dev.place("debug ");
    let debug = debug.trim_start_matches("http://").split('/').next().unwrap().to_owned();
    assert_eq!(get(&debug, "evil.example", "/debug/routes").0, 421);
    for page in ["routes", "topology", "topology?format=dot", "findings"] {
        assert_eq!(get(&debug, "localhost", &format!("/debug/{page}")).0, 200, "{page}");
    }

    // Only its user can read the token.
    let kubeconfig = PathBuf::from(dev.place("export KUBECONFIG="));
    assert_eq!(fs::metadata(&kubeconfig).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(kubeconfig.starts_with(dev.home.path()));

    // After Ctrl-C no process is left.
    let echoes = children(dev.child.id());
    assert_eq!(echoes.len(), 2, "{echoes:?}");
    dev.signal("-INT");
    let ended = Instant::now();
    let status = dev.child.wait().unwrap();
    assert!(status.success(), "{status} {:?}", dev.stderr.try_iter().collect::<Vec<_>>());
    assert!(ended.elapsed() < Duration::from_secs(15), "it took {:?}", ended.elapsed());
    assert!(!echoes.iter().any(|echo| runs(echo)), "echo processes are left");
    assert_eq!(fs::read_dir(dev.home.path()).unwrap().count(), 0, "files are left");
}

#[test]
fn routes_are_frozen_rolled_back_and_thawed() {
    let dev = Dev::start(&[("app.yaml", app(1)), ("ingress.yaml", ingress("a.localhost"))]);
    assert_eq!(dev.get("a.localhost", "/").0, 200);
    let past: serde_json::Value = serde_json::from_str(&dev.says(&["history", "--json"], 0)).unwrap();
    let first = past["newest"].to_string();
    assert!(past["held"].is_null(), "{past}");

    dev.write("ingress.yaml", &ingress("b.localhost"));
    eventually("b.localhost is served", || dev.get("b.localhost", "/").0 == 200);
    let told = dev.says(&["history", "--host", "b.localhost"], 0);
    assert!(told.contains("host a.localhost, host b.localhost") || told.contains("; host b.localhost"), "{told}");
    assert!(told.contains("    Ingress default/app at resourceVersion "), "{told}");

    // The earlier routes serve, and stay.
    let done = dev.says(&["rollback", &first], 0);
    assert!(done.starts_with(&format!("rollback to generation {first}: published as generation ")), "{done}");
    assert!(done.ends_with("; changed: host a.localhost, host b.localhost\n"), "{done}");
    let held = format!("held: the routes of generation {first} serve instead, by a freeze or a rollback\n");
    assert!(dev.says(&["topology"], 0).ends_with(&held));
    assert_eq!((dev.get("a.localhost", "/").0, dev.get("b.localhost", "/").0), (200, 404));
    dev.write("ingress.yaml", &ingress("c.localhost"));
    let explained = |url: &str| dev.explain(url).status.code();
    dev.write("app.yaml", &app(2));
    let mut pods = std::collections::BTreeSet::new();
    eventually("the old route leads to the new pod too", || {
        let (status, body) = dev.get("a.localhost", "/");
        assert_eq!(status, 200, "{body}");
        pods.insert(body.lines().next().unwrap_or_default().to_owned());
        pods.len() == 2
    });
    assert_eq!((explained("http://a.localhost/"), explained("http://c.localhost/")), (Some(0), Some(1)));
    assert!(dev.says(&["history"], 0).contains(&format!("has the routes of generation {first}.")));
    assert!(dev.says(&["freeze"], 1).contains("held already"));
    let health = dev.place("health ");
    let health = health.trim_start_matches("http://").split('/').next().unwrap();
    let held = format!("\nheld: serving the routes of generation {first}, by a freeze or a rollback\n");
    let (status, details) = get(health, "x", "/readyz?verbose");
    assert!(status == 200 && details.contains(&held), "{details}");
    let why = |url| String::from_utf8(dev.explain(url).stdout).unwrap();
    let held = format!("\n  held     rolled back to generation {first} since 20");
    for url in ["http://a.localhost/", "http://c.localhost/"] {
        assert!(why(url).contains(&held), "{}", why(url));
    }

    // The routes of the cluster serve again, in one step.
    dev.says(&["thaw"], 0);
    assert!(!dev.says(&["topology"], 0).contains("held"));
    assert_eq!((dev.get("a.localhost", "/").0, dev.get("c.localhost", "/").0), (404, 200));
    assert!(!why("http://c.localhost/").contains("held"), "{}", why("http://c.localhost/"));
    assert!(dev.says(&["thaw"], 1).contains("no routes are held"));
    assert!(dev.says(&["rollback", "99999"], 1).contains("cannot be restored; those from "));
    dev.says(&["freeze"], 0);
    assert!(why("http://c.localhost/").contains("\n  held     frozen at generation "));

    // A page in a browser can send this, but not JSON.
    let answer = dev.post("/debug/thaw", "");
    assert!(answer.starts_with("HTTP/1.1 415"), "{answer}");
    assert!(dev.says(&["history"], 0).contains("Held by an operator"));
}

#[test]
fn a_closed_terminal_leaves_no_process_behind() {
    // Nothing reads its output: writing fails, as it does on a closed terminal.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut dev = Dev::with(&[("app.yaml", app(1))], &["--log-level", "info"], writer.into());
    let echoes = children(dev.child.id());
    assert_eq!(echoes.len(), 1, "{echoes:?}");
    dev.signal("-HUP");
    assert_eq!(dev.child.wait().unwrap().code(), Some(0));
    assert!(!echoes.iter().any(|echo| runs(echo)), "echo processes are left");
    assert_eq!(fs::read_dir(dev.home.path()).unwrap().count(), 0, "files are left");
}

#[test]
fn echo_processes_end_with_a_killed_dev() {
    let mut dev = Dev::start(&[("app.yaml", app(2))]);
    let echoes = children(dev.child.id());
    assert_eq!(echoes.len(), 2, "{echoes:?}");
    dev.child.kill().unwrap();
    eventually("the echo processes end", || !echoes.iter().any(|echo| runs(echo)));
}

#[test]
fn a_failed_bind_ends_the_process_with_a_reason() {
    let (folder, held) = (tempfile::tempdir().unwrap(), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let taken = held.local_addr().unwrap().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("dev")
        .arg(folder.path())
        .args(["--http", &taken, "--https", "off", "--admin", "off", "--debug", "off"])
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains(&format!("no socket is open for traffic: {taken}: ")), "{stderr}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "files are left");
}
