//! The readiness of a process: `readinessProbe.httpGet` of its first container, by the rules of Kubernetes'
//! documentation ("Configure Liveness, Readiness and Startup Probes"). Each process has one port, and the probe uses it
//! whatever port it names.

use std::net::Ipv4Addr;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Request};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A probe, with the defaults of Kubernetes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Probe {
    path: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) initial_delay: Duration,
    pub(super) period: Duration,
    timeout: Duration,
    successes: u64,
    failures: u64,
}

/// The state that follows from the last results of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Readiness {
    pub(super) ready: bool,
    /// The number of consecutive results that contradict the state.
    against: u64,
}

impl Probe {
    /// Returns `None` if the first container has no probe, or one that is not `httpGet`.
    pub(super) fn of(template: &Value) -> Option<Self> {
        let probe = &template["spec"]["containers"][0]["readinessProbe"];
        let get = probe["httpGet"].as_object()?;
        let number = |field: &str, default: u64| probe[field].as_u64().filter(|number| *number > 0).unwrap_or(default);
        let seconds = |field: &str, default: u64| Duration::from_secs(number(field, default).min(86_400));
        let path = get.get("path").and_then(Value::as_str).filter(|path| !path.is_empty()).unwrap_or("/");
        let headers = get.get("httpHeaders").and_then(Value::as_array).into_iter().flatten().filter_map(|one| {
            Some((one["name"].as_str()?.parse().ok()?, HeaderValue::from_str(one["value"].as_str()?).ok()?))
        });
        Some(Self {
            path: if path.starts_with('/') { path.to_owned() } else { format!("/{path}") },
            headers: headers.collect(),
            initial_delay: seconds("initialDelaySeconds", 0),
            period: seconds("periodSeconds", 10),
            timeout: seconds("timeoutSeconds", 1),
            successes: number("successThreshold", 1),
            failures: number("failureThreshold", 3),
        })
    }

    /// Takes one result into account.
    pub(super) fn after(&self, before: Readiness, success: bool) -> Readiness {
        if success == before.ready {
            return Readiness { against: 0, ..before };
        }
        let against = before.against + 1;
        let enough = against >= if success { self.successes } else { self.failures };
        if enough { Readiness { ready: success, against: 0 } } else { Readiness { against, ..before } }
    }

    /// Probes once: a status from 200 to 399 within the time is a success. The error describes any other result.
    pub(super) async fn succeeds(&self, port: u16) -> Result<(), String> {
        match timeout(self.timeout, self.ask(port)).await {
            Ok(Some(200..400)) => Ok(()),
            Ok(Some(status)) => Err(format!("HTTP probe failed with statuscode: {status}")),
            Ok(None) => Err("the process does not answer".to_owned()),
            Err(_) => Err("the process did not answer in time".to_owned()),
        }
    }

    async fn ask(&self, port: u16) -> Option<u16> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
        let mut request = Request::get(&*self.path).header(http::header::USER_AGENT, "kube-probe/1.36");
        if !self.headers.iter().any(|(name, _)| name == http::header::HOST) {
            request = request.header(http::header::HOST, format!("127.0.0.1:{port}"));
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Empty::<Bytes>::new()).ok()?;
        let mut answer = std::pin::pin!(sender.send_request(request));
        let answer = tokio::select! {
            answer = &mut answer => answer,
            // The server has closed the connection, perhaps after its response.
            _ = connection => answer.await,
        };
        Some(answer.ok()?.status().as_u16())
    }
}

/// Returns `true` if a process accepts connections on its port.
pub(super) async fn accepts(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn probe(fields: Value) -> Option<Probe> {
        Probe::of(&json!({"spec": {"containers": [{"name": "a", "readinessProbe": fields}]}}))
    }

    /// Results are written as `+` and `-`; so is the readiness after each.
    #[track_caller]
    fn check(fields: Value, results: &str, expected: &str) {
        let (probe, mut state) = (probe(fields).unwrap(), Readiness::default());
        let after = results.chars().map(|result| {
            state = probe.after(state, result == '+');
            if state.ready { '+' } else { '-' }
        });
        assert_eq!(after.collect::<String>(), expected, "{results}");
    }

    #[test]
    fn readiness_changes_at_the_thresholds() {
        let get = json!({"path": "/ready"});
        check(json!({"httpGet": get}), "-+--+---+", "-++++++-+");
        check(json!({"httpGet": get, "failureThreshold": 1}), "+-+", "+-+");
        check(json!({"httpGet": get, "successThreshold": 2}), "+-++", "---+");
    }

    #[test]
    fn fields_have_the_defaults_of_kubernetes() {
        let got = probe(json!({"httpGet": {"path": "ready", "port": 1}, "periodSeconds": 2, "initialDelaySeconds": 1}))
            .unwrap();
        assert_eq!(
            (&*got.path, got.initial_delay, got.period),
            ("/ready", Duration::from_secs(1), Duration::from_secs(2))
        );
        assert_eq!((got.timeout, got.successes, got.failures), (Duration::from_secs(1), 1, 3));
        assert_eq!(probe(json!({"tcpSocket": {"port": 1}})), None);
        assert_eq!(probe(Value::Null), None);
    }
}
