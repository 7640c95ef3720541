//! Credential plugins: programs that a kubeconfig names and that print credentials
//! (`client.authentication.k8s.io`).
//!
//! A plugin is run when the first request needs it, before its credentials end, when the API server has refused them
//! (401), and when the kubeconfig has changed. Requests that have other credentials do not wait for it
//! ([`Freshness`](super::Freshness)). It has no part in the start of the process, which serves from its cache while
//! neither plugin nor API server works.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use k8s_openapi::jiff::Timestamp;
use kube::Config;
use kube::client::ConfigExt as _;
use kube::config::{ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use crate::clock;
use crate::followed::{Following, Reports, single_value};

/// The source of credentials in metrics and the log.
const SOURCE: &str = "credential-plugin";
/// The time for one run.
const RUN_TIMEOUT: Duration = Duration::from_secs(30);
/// The time from the end of a run to the next one for the same configuration, so that many requests that are refused at
/// once cause one run, and a slow plugin that fails does not run all the time.
const PAUSE: Duration = Duration::from_secs(1);
/// Credentials are renewed so long before they end, or when a quarter of their time is left.
const MARGIN: Duration = Duration::from_secs(60);
/// The maximum size of the output, in bytes.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

/// The credentials of one run.
pub(in crate::cluster) struct Run {
    token: Option<String>,
    /// A certificate chain and its key, in PEM.
    certificate: Option<(String, String)>,
    expiry: Option<Expiry>,
    /// When the plugin had printed them.
    ended: Instant,
    /// The configuration that named the plugin.
    files: Arc<Config>,
}

impl Run {
    /// `true` if the credentials end soon, or have ended.
    pub(super) fn is_ending(&self) -> bool {
        self.expiry.is_some_and(|expiry| expiry.renew_at <= clock::wall())
    }

    /// `true` if the credentials have ended.
    pub(super) fn has_ended(&self) -> bool {
        self.expiry.is_some_and(|expiry| expiry.at <= clock::wall())
    }

    /// `true` if these are credentials of the plugin of a configuration, run for this version of its files.
    pub(super) fn is_of(&self, files: &Arc<Config>) -> bool {
        Arc::ptr_eq(&self.files, files)
    }

    /// `true` if the same plugin has made these credentials for the same server. Others must not be sent there.
    fn may_serve(&self, files: &Config) -> bool {
        let plugin = |files: &Config| files.auth_info.exec.as_ref().and_then(|exec| serde_json::to_value(exec).ok());
        self.files.cluster_url == files.cluster_url && plugin(&self.files) == plugin(files)
    }

    /// The configuration with these credentials in place of the plugin.
    pub(super) fn fill(&self, mut config: Config) -> Config {
        let user = &mut config.auth_info;
        user.exec = None;
        user.token = self.token.clone().map(Into::into);
        if let Some((chain, key)) = &self.certificate {
            user.client_certificate_data = Some(STANDARD.encode(chain));
            user.client_key_data = Some(STANDARD.encode(key).into());
        }
        config
    }
}

/// The end of credentials.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Expiry {
    renew_at: SystemTime,
    at: SystemTime,
}

/// A run that failed.
struct Failure {
    ended: Instant,
    why: String,
    files: Arc<Config>,
}

/// The runs of a plugin.
pub(super) struct Plugin {
    newest: watch::Sender<Option<Arc<Run>>>,
    /// The last attempt, if it failed. Held during a run, so that there is one at a time.
    failed: Mutex<Option<Failure>>,
    following: Following,
    reports: std::sync::OnceLock<Reports>,
}

impl Plugin {
    pub(super) fn new(following: &Following) -> Self {
        Self {
            newest: watch::Sender::default(),
            failed: Mutex::default(),
            following: following.clone(),
            reports: std::sync::OnceLock::new(),
        }
    }

    pub(super) fn is_newest(&self, run: &Arc<Run>) -> bool {
        self.newest.borrow().as_ref().is_some_and(|newest| Arc::ptr_eq(newest, run))
    }

    /// The credentials: those of the newest run, unless it is the `refused` one, ends soon, or had other files. If the
    /// plugin fails, those of the newest run all the same, if the same plugin made them for the same server.
    pub(super) async fn credentials(
        &self,
        exec: &ExecConfig,
        files: &Arc<Config>,
        refused: Option<&Arc<Run>>,
    ) -> Result<Arc<Run>, String> {
        let mut failed = self.failed.lock().await;
        let newest = self.newest.borrow().clone().filter(|run| run.may_serve(files));
        let now = clock::now();
        let just_now = |ended: Instant| now.saturating_duration_since(ended) < PAUSE;
        if let Some(run) = &newest {
            let refused = refused.is_some_and(|refused| Arc::ptr_eq(refused, run));
            let fits = run.is_of(files) && !run.is_ending() && !refused;
            if fits || just_now(run.ended) {
                return Ok(Arc::clone(run));
            }
        }
        if let Some(failure) = &*failed
            && Arc::ptr_eq(&failure.files, files)
            && just_now(failure.ended)
        {
            return newest.ok_or_else(|| failure.why.clone());
        }
        let reports = self.reports.get_or_init(|| self.following.reports(SOURCE));
        match run(exec, files).await {
            Ok(run) => {
                let run = Arc::new(run);
                *failed = None;
                self.newest.send_replace(Some(Arc::clone(&run)));
                reports.good(
                    newest.is_none_or(|newest| newest.token != run.token || newest.certificate != run.certificate),
                );
                Ok(run)
            }
            Err(why) => {
                reports.bad(&why);
                *failed = Some(Failure { ended: clock::now(), why: why.clone(), files: Arc::clone(files) });
                newest.ok_or(why)
            }
        }
    }
}

/// The answer of a plugin.
#[derive(Deserialize)]
struct Answer {
    status: Option<AnswerStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerStatus {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Runs a plugin once. No message has any of its output.
async fn run(exec: &ExecConfig, files: &Arc<Config>) -> Result<Run, String> {
    let name = exec.command.as_deref().unwrap_or_default();
    let output = timeout(RUN_TIMEOUT, output(exec)).await;
    let output = output.map_err(|_| format!("{name}: did not end within {} s", RUN_TIMEOUT.as_secs()))??;
    let answer: Answer = serde_saphyr::from_slice(&output)
        .map_err(|_| format!("{name}: its output is not an ExecCredential in JSON or YAML"))?;
    let status = answer.status.ok_or_else(|| format!("{name}: its output has no status"))?;
    let token = status.token.as_deref().and_then(|token| single_value(token.as_bytes())).map(str::to_owned);
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let certificate = given(status.client_certificate_data).zip(given(status.client_key_data));
    if token.is_none() && certificate.is_none() {
        return Err(format!("{name}: its output has neither a token nor a client certificate with its key"));
    }
    if token.as_ref().is_some_and(|token| HeaderValue::from_str(token).is_err()) {
        return Err(format!("{name}: its token has bytes that no header may have"));
    }
    let expiry = status.expiration_timestamp.map(|text| expiry(&text, clock::wall()).ok_or(text)).transpose();
    let expiry = expiry.map_err(|_| format!("{name}: its expirationTimestamp is not a time of RFC 3339"))?;
    let run = Run { token, certificate, expiry, ended: clock::now(), files: Arc::clone(files) };
    let checked = run.fill(Config::clone(files)).rustls_client_config();
    checked.map_err(|_| format!("{name}: its client certificate and key cannot be used"))?;
    Ok(run)
}

/// The end of credentials that end at a time (RFC 3339); `None` if it is not one.
fn expiry(end: &str, now: SystemTime) -> Option<Expiry> {
    let at = SystemTime::from(end.parse::<Timestamp>().ok()?);
    let left = at.duration_since(now).unwrap_or_default();
    Some(Expiry { renew_at: at.checked_sub(MARGIN.min(left / 4))?, at })
}

/// The output of a plugin.
async fn output(exec: &ExecConfig) -> Result<Vec<u8>, String> {
    let name = exec.command.as_deref().filter(|name| !name.is_empty());
    let name = name.ok_or("the kubeconfig names a credential plugin without a command")?;
    if exec.interactive_mode == Some(ExecInteractiveMode::Always) {
        return Err(format!("{name}: asks a person (interactiveMode: Always), and there is nobody to ask"));
    }
    let mut spec = json!({ "interactive": false });
    if let Some(cluster) = exec.cluster.as_ref().filter(|_| exec.provide_cluster_info) {
        spec["cluster"] = serde_json::to_value(cluster).map_err(|_| format!("{name}: its cluster is invalid"))?;
    }
    let request = json!({ "apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec });
    let variables = exec.env.iter().flatten().filter_map(|variable| variable.get("name").zip(variable.get("value")));
    let mut child = Command::new(name)
        .args(exec.args.iter().flatten())
        .envs(variables)
        .env("KUBERNETES_EXEC_INFO", request.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|why| format!("{name}: {why}"))?;
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(OUTPUT_BYTES_MAX).read_to_end(&mut output).await.map_err(|why| format!("{name}: {why}"))?;
    }
    let ended = child.wait().await.map_err(|why| format!("{name}: {why}"))?;
    if !ended.success() {
        return Err(format!("{name}: {ended}"));
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(end: &str, want: Option<u64>) {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let seconds = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        assert_eq!(expiry(end, now).map(|expiry| seconds(expiry.renew_at)), want, "{end}");
    }

    /// The time passes at once while nothing but the plugin works.
    #[tokio::test(start_paused = true)]
    async fn a_plugin_has_limited_time_and_output() {
        let files = Arc::new(Config::new("http://127.0.0.1:1".parse().unwrap()));
        let plugin = |script: &str| -> ExecConfig {
            serde_json::from_value(json!({"command": "/bin/sh", "args": ["-c", script]})).unwrap()
        };
        let began = tokio::time::Instant::now();
        let endless = run(&plugin("exec sleep 3600"), &files).await;
        assert_eq!(endless.err().as_deref(), Some("/bin/sh: did not end within 30 s"));
        assert_eq!(began.elapsed().as_secs(), RUN_TIMEOUT.as_secs());
    }

    #[tokio::test]
    async fn the_output_of_a_plugin_is_limited() {
        let plugin = json!({"command": "/bin/sh", "args": ["-c", "exec yes"]});
        // It ends because nobody reads on.
        let why = output(&serde_json::from_value(plugin).unwrap()).await.unwrap_err();
        assert!(why.starts_with("/bin/sh: signal: 13"), "{why}");
    }

    #[test]
    fn credentials_are_renewed_before_they_end() {
        check("1970-01-01T01:00:00Z", Some(3_540));
        check("1970-01-01T00:16:44Z", Some(1_003));
        check("1970-01-01T00:16:40Z", Some(1_000));
        check("1970-01-01T00:00:10Z", Some(10));
        check("soon", None);
    }
}
