//! h2load: HTTP/2, and HTTP/1.1 for a fixed number or a fixed rate of requests.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::process::Command;
use tokio::time::timeout;

use super::{Ask, Load};
use crate::spread::{percentile, sorted};

/// The amount of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Amount {
    /// As many as possible in this time.
    Saturated(Duration),
    /// A rate per second over all connections, for this time.
    Paced(Duration, usize),
    /// A fixed number.
    Counted(usize),
}

/// Sends requests over this number of connections.
///
/// # Errors
/// When h2load cannot be run or gets no response at all.
pub(crate) async fn h2load(ask: &Ask<'_>, amount: Amount, connections: usize) -> anyhow::Result<Load> {
    let folder = tempfile::tempdir()?;
    let (log, body) = (folder.path().join("log"), folder.path().join("body"));
    let mut command = Command::new("h2load");
    command.args(["--threads", "1", "--clients", &connections.to_string()]);
    match ask.streams {
        Some(streams) => command.args(["--max-concurrent-streams", &streams.to_string()]),
        None => command.arg("--h1"),
    };
    let patience = match amount {
        Amount::Saturated(duration) => {
            command.args(["--duration", &duration.as_secs().max(1).to_string()]);
            duration
        }
        Amount::Paced(duration, rate) => {
            command.args(pace(duration, rate, connections));
            duration
        }
        Amount::Counted(requests) => {
            command.args(["--requests", &requests.to_string()]);
            Duration::from_secs(600)
        }
    };
    if ask.close {
        // h2load opens another connection when the response closes this one.
        command.args(["--header", "connection: close"]);
    }
    for header in ask.headers {
        command.args(["--header", header]);
    }
    if let Some(bytes) = ask.body {
        std::fs::write(&body, vec![b'x'; bytes])?;
        command.arg("--data").arg(&body);
    }
    let h2load = command
        .arg("--log-file")
        .arg(&log)
        .arg(format!("--connect-to={}", ask.address))
        .arg(format!("{}://{}{}", ask.scheme(), ask.host, ask.path))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output();
    let output = timeout(patience + Duration::from_secs(30), h2load).await.context("h2load does not end")??;
    ensure!(output.status.success(), "h2load: {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    read(&text, &log).with_context(|| format!("h2load with {ask:?} said:\n{text}"))
}

/// The arguments for a rate per second over all connections. Each connection sends at its own pace from the time it was
/// opened: opened one after the other, at an interval in milliseconds, they send in turn, and not all at the same
/// moment. h2load takes a number of requests for that, not a duration.
fn pace(duration: Duration, rate: usize, connections: usize) -> [String; 4] {
    let (rate, connections) = (rate.max(1), connections.max(1));
    let requests = rate * usize::try_from(duration.as_secs().max(1)).unwrap_or(1);
    #[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let each = rate as f64 / connections as f64;
    [
        format!("--requests={requests}"),
        format!("--rps={each}"),
        "--rate=1".to_owned(),
        format!("--rate-period={}ms", (1000 / rate).max(1)),
    ]
}

/// Parses its summary and its log of requests.
fn read(text: &str, log: &Path) -> anyhow::Result<Load> {
    let summary = Summary::parse(text).context("no summary")?;
    let (mut statuses, mut latencies) = (0, Vec::new());
    for line in std::fs::read_to_string(log)?.lines() {
        let mut fields = line.split('\t').skip(1);
        let (status, latency) = (fields.next().context("a status")?, fields.next().context("a latency")?);
        // A request without a response has the status -1; the summary counts it as failed too.
        statuses += u64::from(status.parse::<i64>()? >= 400);
        latencies.push(latency.parse::<f64>()?);
    }
    let latencies = sorted(latencies);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "microseconds far below 2^52")]
    let of = |percent| percentile(&latencies, percent).map_or(0, |latency| latency as u64);
    ensure!(summary.done > 0, "no answer");
    Ok(Load {
        requests: summary.done,
        duration_us: summary.duration_us,
        connect: 0,
        read: summary.errored,
        write: 0,
        status: statuses.max(summary.failed.saturating_sub(summary.errored)),
        timeout: summary.timeout,
        p50_us: of(50.0),
        p99_us: of(99.0),
        p999_us: of(99.9),
        max_us: of(100.0),
    })
}

#[derive(PartialEq, Debug)]
struct Summary {
    duration_us: u64,
    done: u64,
    failed: u64,
    errored: u64,
    timeout: u64,
}

impl Summary {
    fn parse(text: &str) -> Option<Self> {
        let after = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
        let requests = after("requests: ")?;
        let number = |name: &str| {
            let field = requests.split(", ").find_map(|field| field.trim().strip_suffix(name))?;
            field.trim().parse::<u64>().ok()
        };
        let duration = after("finished in ")?.split(',').next()?;
        let (figure, unit) = duration.split_at(duration.find(|c: char| c.is_ascii_alphabetic())?);
        let factor = match unit {
            "s" => 1e6,
            "ms" => 1e3,
            "us" => 1.0,
            _ => return None,
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few minutes")]
        let duration_us = (figure.parse::<f64>().ok()? * factor) as u64;
        Some(Self {
            duration_us,
            done: number(" succeeded")?,
            failed: number(" failed")?,
            errored: number(" errored")?,
            timeout: number(" timeout")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(duration: &str, want_us: u64) {
        let text = format!(
            "starting benchmark...\n\nfinished in {duration}, 3321.52 req/s, 531.70KB/s\n\
             requests: 1000 total, 1000 started, 990 done, 980 succeeded, 10 failed, 3 errored, 1 timeout\n"
        );
        let want = Summary { duration_us: want_us, done: 980, failed: 10, errored: 3, timeout: 1 };
        assert_eq!(Summary::parse(&text), Some(want));
    }

    #[track_caller]
    fn check_pace(rate: usize, connections: usize, want: [&str; 4]) {
        assert_eq!(pace(Duration::from_secs(2), rate, connections), want.map(str::to_owned));
    }

    #[test]
    fn connections_share_a_rate_evenly() {
        check_pace(1000, 16, ["--requests=2000", "--rps=62.5", "--rate=1", "--rate-period=1ms"]);
        check_pace(100, 4, ["--requests=200", "--rps=25", "--rate=1", "--rate-period=10ms"]);
        check_pace(5000, 4, ["--requests=10000", "--rps=1250", "--rate=1", "--rate-period=1ms"]);
    }

    #[test]
    fn a_summary_is_read_in_every_unit() {
        check("3.01s", 3_010_000);
        check("301.07ms", 301_070);
        check("950us", 950);
        assert_eq!(Summary::parse("finished"), None);
    }
}
