//! Writes of clients of the served API, forwarded to the API server under their identity. The connection has none of
//! this process's credentials: a client can do what its own token allows, and nothing more.

use std::time::Duration;

use anyhow::Context as _;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Bytes;
use kube::client::Body;
use prometheus::{IntCounterVec, Opts, Registry};
use tidegate_control::client::{Access, Deadlines};
use tidegate_control::{ApiServer, client};
use tidegate_lite::{ForwardError, WriteForwarder};

use crate::settings::is_private;

/// The API server gives a write a minute, admission webhooks included.
const DEADLINES: Deadlines =
    Deadlines { headers: Duration::from_secs(65), read: Duration::from_secs(65), ..Deadlines::WRITE };
/// The maximum size of an answer that is passed back, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A client for the same API server, without credentials.
///
/// # Errors
/// When clients' tokens would cross a network in clear text, or the configuration cannot be used.
pub(crate) fn client(access: &Access, api_server: &ApiServer) -> anyhow::Result<kube::Client> {
    let config = access.config();
    let url = &config.cluster_url;
    anyhow::ensure!(
        is_private(url),
        "--forward-writes: {url} is plain HTTP and not on loopback, and writes would take the bearer tokens of their clients there in \
         clear text; name an https URL"
    );
    client::connect(&access.anonymous(), DEADLINES, api_server).context("--forward-writes")
}

/// Forwards requests with this client, and counts them.
pub(crate) fn forwarder(client: kube::Client, registry: &Registry) -> prometheus::Result<WriteForwarder> {
    let opts = Opts::new("tidegate_served_writes_total", "Writes forwarded to the API server, by outcome.");
    let writes = IntCounterVec::new(opts, &["outcome"])?;
    registry.register(Box::new(writes.clone()))?;
    Ok(WriteForwarder::to(move |request| {
        let (client, writes) = (client.clone(), writes.clone());
        Box::pin(async move {
            let answer = forward(&client, request).await;
            let outcome = match &answer {
                Ok(answer) if answer.status().is_success() => "made",
                Ok(_) => "refused",
                Err(ForwardError::Unreachable) => "unreachable",
                Err(ForwardError::Unanswered) => "unanswered",
            };
            writes.with_label_values(&[outcome]).inc();
            answer
        })
    }))
}

async fn forward(client: &kube::Client, request: Request<Bytes>) -> Result<Response<Bytes>, ForwardError> {
    let answer = client.send(request.map(Body::from)).await.map_err(|why| reached(&why))?;
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|_| ForwardError::Unanswered)?;
    Ok(Response::from_parts(head, body.to_bytes()))
}

/// Classifies a failed request: the server cannot have received it if no connection was made.
fn reached(why: &kube::Error) -> ForwardError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(why);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>()
            && error.is_connect()
        {
            return ForwardError::Unreachable;
        }
        cause = error.source();
    }
    ForwardError::Unanswered
}

#[cfg(test)]
mod tests {
    use tidegate_control::Following;

    use super::*;

    #[track_caller]
    fn check(url: &str, want: bool) {
        let config = kube::Config::new(url.parse().unwrap());
        let access = Access::of(&Following::new().unwrap(), "test", config).unwrap();
        let got = client(&access, &ApiServer::default()).map(drop).map_err(|why| why.to_string());
        if want {
            assert_eq!(got, Ok(()), "{url}");
        } else {
            let refused = format!("--forward-writes: {url} is plain HTTP and not on loopback");
            assert!(got.as_ref().is_err_and(|why| why.starts_with(&refused)), "{url}: {got:?}");
        }
    }

    #[tokio::test]
    async fn tokens_are_sent_in_clear_text_only_to_loopback() {
        check("https://192.0.2.1:6443/", true);
        check("https://api.example/", true);
        check("http://127.0.0.1:8001/", true);
        check("http://[::1]:8001/", true);
        check("http://localhost:8001/", true);
        check("http://192.0.2.1:8001/", false);
        check("http://[2001:db8::1]:8001/", false);
        check("http://api.example/", false);
        check("http://localhost.example:8001/", false);
        check("http://127.0.0.1.example/", false);
    }
}
