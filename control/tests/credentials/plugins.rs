//! Credential plugins.

use std::path::Path;

use serde_json::json;
use tokio::net::unix::pipe;

use super::server::{NO_ANSWER, Server};
use super::{Asking, kubeconfig, replace};

/// A plugin that prints a file, fails if there is none, and counts its runs.
struct Plugin {
    folder: tempfile::TempDir,
    server: Server,
}

impl Plugin {
    async fn new() -> Self {
        let plugin = Self::beside(Server::start().await);
        plugin.write_config(&plugin.at("config"));
        plugin
    }

    /// A plugin that no kubeconfig names yet, for a server.
    fn beside(server: Server) -> Self {
        let plugin = Self { folder: tempfile::tempdir().unwrap(), server };
        let script = "echo run >>\"$0.runs\"; printf '%s' \"$KUBERNETES_EXEC_INFO\" >\"$0.info\"; cat \"$0.out\"";
        std::fs::write(plugin.at("plugin"), script).unwrap();
        plugin
    }

    /// Writes a kubeconfig of this plugin and server.
    fn write_config(&self, config: &Path) {
        let exec = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "args": [self.at("plugin")],
            "interactiveMode": "Never", "provideClusterInfo": true, "env": [{"name": "A", "value": "b"}],
        });
        let cluster = json!({"server": format!("http://{}", self.server.address)});
        replace(config, &kubeconfig(&cluster, &json!({"exec": exec})));
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn prints(&self, token: &str, end: Option<&str>) {
        replace(&self.at("plugin.out"), &credentials(token, end));
    }

    /// Makes every run hang until [`Self::release`] is called during it.
    fn hangs(&self) {
        let out = self.at("plugin.out");
        std::fs::remove_file(&out).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(out).status().unwrap().success());
    }

    /// Lets a run that hangs print a token.
    async fn release(&self, token: &str) {
        for _ in 0..600 {
            // Fails if no run hangs.
            if let Ok(pipe) = pipe::OpenOptions::new().open_sender(self.at("plugin.out")) {
                pipe.writable().await.unwrap();
                let credentials = credentials(token, None);
                assert_eq!(pipe.try_write(credentials.as_bytes()).unwrap(), credentials.len());
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        panic!("the plugin does not run");
    }

    fn runs(&self) -> usize {
        lines(&self.at("plugin.runs"))
    }
}

/// The output of a plugin.
fn credentials(token: &str, end: Option<&str>) -> String {
    let status = json!({"token": token, "expirationTimestamp": end});
    json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}).to_string()
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}

/// Longer than the pause between two runs.
async fn pause() {
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
}

#[tokio::test]
async fn a_refusal_runs_the_plugin_again_once() {
    let plugin = Plugin::new().await;
    plugin.prints("one", None);
    let asking = Asking::by(&plugin.at("config"));
    assert_eq!(plugin.runs(), 0, "it is not run before the first request");
    assert_eq!(asking.ask().await.unwrap(), "Bearer one");
    assert_eq!(asking.ask().await.unwrap(), "Bearer one");
    assert_eq!(plugin.runs(), 1);
    let info: serde_json::Value = serde_json::from_slice(&std::fs::read(plugin.at("plugin.info")).unwrap()).unwrap();
    let server = format!("http://{}", plugin.server.address);
    assert_eq!(
        (info["spec"]["interactive"].as_bool(), info["spec"]["cluster"]["server"].as_str()),
        (Some(false), Some(&*server))
    );
    pause().await;
    plugin.prints("two\n", None);
    plugin.server.accept("Bearer two");
    let asked = futures::future::join_all((0..8).map(|_| asking.ask())).await;
    assert!(asked.iter().any(Result::is_err));
    assert_eq!(asking.ask().await.unwrap(), "Bearer two");
    assert_eq!(plugin.runs(), 2);
}

#[tokio::test]
async fn credentials_that_end_are_replaced_without_a_refusal() {
    let plugin = Plugin::new().await;
    plugin.prints("one", Some("2001-01-01T00:00:00Z"));
    let asking = Asking::by(&plugin.at("config"));
    assert_eq!(asking.ask().await.unwrap(), "Bearer one");
    pause().await;
    plugin.prints("two", Some("2999-01-01T00:00:00Z"));
    for _ in 0..3 {
        assert_eq!(asking.ask().await.unwrap(), "Bearer two");
    }
    assert_eq!(plugin.runs(), 2);
}

#[tokio::test]
async fn a_failing_plugin_is_tried_again_and_its_output_is_not_shown() {
    let plugin = Plugin::new().await;
    let asking = Asking::by(&plugin.at("config"));
    for output in [None, Some("a-secret"), Some(r#"{"status": {}}"#), Some(r#"{"status": {"token": "a-secret\n\nb"}}"#)]
    {
        if let Some(output) = output {
            replace(&plugin.at("plugin.out"), output);
        }
        let why = asking.ask().await.unwrap_err();
        assert!(!why.contains("secret"), "{why}");
        assert_eq!(asking.metric(r#"tidegate_followed_files_current{source="credential-plugin"}"#), 0, "{output:?}");
        pause().await;
    }
    plugin.prints("one", None);
    assert_eq!(asking.ask().await.unwrap(), "Bearer one");
    assert_eq!(asking.metric(r#"tidegate_followed_files_current{source="credential-plugin"}"#), 1);
    // The last credentials stay in use while the plugin fails.
    pause().await;
    std::fs::remove_file(plugin.at("plugin.out")).unwrap();
    plugin.server.accept("Bearer none");
    asking.ask().await.unwrap_err();
    plugin.server.accept("Bearer one");
    assert_eq!(asking.ask().await.unwrap(), "Bearer one");
}

/// Asks until the answer is no longer the `old` one, which is as good until then.
async fn next_answer(asking: &Asking, old: &str) -> String {
    for _ in 0..600 {
        let answer = asking.ask().await.unwrap();
        if answer != old {
            return answer;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the plugin is not run again")
}

/// Refuses a request once, after which the files are read again.
async fn refuse_once(plugin: &Plugin, asking: &Asking) {
    plugin.server.accept("Bearer none");
    asking.ask().await.unwrap_err();
    plugin.server.accept("Bearer one");
}

#[tokio::test]
async fn credentials_of_one_plugin_never_go_to_the_server_of_another() {
    let (plugin, other) = (Plugin::new().await, Plugin::beside(Server::start().await));
    plugin.prints("one", None);
    let asking = Asking::by(&plugin.at("config"));
    assert_eq!(asking.ask().await.unwrap(), "Bearer one");
    other.server.accept("Bearer two");
    other.write_config(&plugin.at("config"));
    refuse_once(&plugin, &asking).await;
    // The other plugin fails, and its server refuses the token of the first.
    assert_eq!(asking.ask().await.unwrap(), "Bearer one");
    assert_eq!((plugin.runs(), other.runs()), (1, 1));
    other.prints("two", None);
    assert_eq!(next_answer(&asking, "Bearer one").await, "Bearer two");
    assert_eq!(plugin.runs(), 1);
}

#[tokio::test]
async fn a_plugin_that_failed_for_a_changed_kubeconfig_is_run_again() {
    let plugin = Plugin::new().await;
    plugin.prints("one", None);
    let asking = Asking::by(&plugin.at("config"));
    assert_eq!(asking.ask().await.unwrap(), "Bearer one");
    pause().await;
    std::fs::remove_file(plugin.at("plugin.out")).unwrap();
    let config = std::fs::read_to_string(plugin.at("config")).unwrap();
    replace(&plugin.at("config"), &(config + "\n"));
    refuse_once(&plugin, &asking).await;
    assert_eq!(asking.ask().await.unwrap(), "Bearer one");
    plugin.prints("two", None);
    plugin.server.accepted.send_replace(None);
    assert_eq!(next_answer(&asking, "Bearer one").await, "Bearer two");
}

#[tokio::test]
async fn a_hanging_plugin_of_a_changed_kubeconfig_does_not_hold_requests() {
    let plugin = Plugin::new().await;
    plugin.prints("one", None);
    let asking = Asking::by(&plugin.at("config"));
    assert_eq!(asking.ask().await.unwrap(), "Bearer one");
    pause().await;
    plugin.hangs();
    let config = std::fs::read_to_string(plugin.at("config")).unwrap();
    replace(&plugin.at("config"), &(config + "\n"));
    plugin.server.accept(NO_ANSWER);
    asking.ask().await.unwrap_err();
    plugin.server.accepted.send_replace(None);
    assert_eq!(asking.ask().await.unwrap(), "Bearer one");
    // The run goes on beside the requests.
    plugin.release("two").await;
    assert_eq!(next_answer(&asking, "Bearer one").await, "Bearer two");
    assert_eq!(plugin.runs(), 2);
}
