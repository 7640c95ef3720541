//! Load: requests at full speed or at a fixed rate, and their results. wrk makes it for HTTP/1.1 at full speed, h2load
//! for everything else.

mod case;
mod h2load;

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::time::timeout;

pub(crate) use case::{CASES, Case};
pub(crate) use h2load::{Amount, h2load};

/// Prints wrk's results as one line of JSON; wrk's own summary has no p99.9 and leaves out errors that did not happen.
const SCRIPT: &str = r#"
wrk.method = "%METHOD%"
wrk.body = %BODY%
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    '{"requests":%d,"duration_us":%d,"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d,' ..
    '"p50_us":%d,"p99_us":%d,"p999_us":%d,"max_us":%d}\n',
    summary.requests, summary.duration, e.connect, e.read, e.write, e.status, e.timeout,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9), latency.max))
end
"#;

/// The parameters of the load.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub(crate) struct Args {
    /// The number of connections of the load.
    #[arg(long, default_value_t = 16)]
    pub(crate) connections: usize,
    /// The number of threads of the load.
    #[arg(long, default_value_t = 1)]
    load_threads: usize,
}

/// The request of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    /// The address.
    pub(crate) address: SocketAddr,
    /// `true` for TLS.
    pub(crate) tls: bool,
    /// The number of concurrent requests on one connection, for HTTP/2; `None` for HTTP/1.1.
    pub(crate) streams: Option<usize>,
    /// `true` if every connection carries one request.
    pub(crate) close: bool,
    /// The host.
    pub(crate) host: &'a str,
    /// Additional headers, each a whole line.
    pub(crate) headers: &'a [&'a str],
    /// The path.
    pub(crate) path: &'a str,
    /// The length of a POST body in bytes; `None` for a GET.
    pub(crate) body: Option<usize>,
}

impl Ask<'_> {
    const fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }
}

/// The results of one run of wrk.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    /// Requests with a response.
    pub(crate) requests: u64,
    /// Wall time, in microseconds.
    pub(crate) duration_us: u64,
    /// Failed connections.
    pub(crate) connect: u64,
    /// Connections that broke, or were closed, while a response was pending.
    pub(crate) read: u64,
    /// Requests that could not be sent.
    pub(crate) write: u64,
    /// Responses of status 400 and above.
    pub(crate) status: u64,
    /// Responses that took longer than 2 seconds.
    pub(crate) timeout: u64,
    /// The median latency, in microseconds.
    pub(crate) p50_us: u64,
    /// The latency that 99 of 100 requests stay under.
    pub(crate) p99_us: u64,
    /// The latency that 999 of 1000 requests stay under.
    pub(crate) p999_us: u64,
    /// The longest latency.
    pub(crate) max_us: u64,
}

impl Load {
    /// The number of all errors.
    #[must_use]
    pub(crate) const fn failures(&self) -> u64 {
        self.connect + self.read + self.write + self.status + self.timeout
    }

    /// Responses per second.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    pub(crate) fn rate(&self) -> f64 {
        self.requests as f64 * 1e6 / self.duration_us.max(1) as f64
    }
}

/// Sends requests as fast as possible, over HTTP/1.1 by wrk and over HTTP/2 by h2load.
///
/// # Errors
/// When the load generator fails or gets no response at all.
pub(crate) async fn saturated(case: &Case, ask: &Ask<'_>, duration: Duration, args: &Args) -> anyhow::Result<Load> {
    if case.http2() {
        h2load(ask, Amount::Saturated(duration), case.connections(args.connections)).await
    } else {
        wrk(ask, duration, args).await
    }
}

async fn wrk(ask: &Ask<'_>, duration: Duration, args: &Args) -> anyhow::Result<Load> {
    let Ask { address, host, path, .. } = *ask;
    let script = tempfile::Builder::new().suffix(".lua").tempfile()?;
    let (method, body) = ask.body.map_or(("GET", "nil".to_owned()), |n| ("POST", format!("string.rep('x', {n})")));
    std::fs::write(script.path(), SCRIPT.replace("%METHOD%", method).replace("%BODY%", &body))?;
    let mut wrk = Command::new("wrk");
    if ask.close {
        wrk.args(["--header", "Connection: close"]);
    }
    for header in ask.headers {
        wrk.args(["--header", header]);
    }
    // Over TLS, wrk uses the host that it connects to as the server name.
    let authority = if ask.tls { format!("{host}:{}", address.port()) } else { address.to_string() };
    let wrk = wrk
        .args(["--connections", &args.connections.to_string(), "--threads", &args.load_threads.to_string()])
        .args(["--duration", &format!("{}s", duration.as_secs().max(1)), "--header", &format!("Host: {host}")])
        .arg("--script")
        .arg(script.path())
        .arg(format!("{}://{authority}{path}", ask.scheme()))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output();
    let output = timeout(duration + Duration::from_secs(30), wrk).await.context("wrk does not end")??;
    ensure!(output.status.success(), "wrk: {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().rev().find(|line| line.starts_with('{')).context("wrk printed no figures")?;
    let load: Load = serde_json::from_str(line)?;
    ensure!(load.requests > 0, "no response from {address} for {host}");
    Ok(load)
}
