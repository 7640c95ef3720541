//! `tidegate explain URL`: asks the debug address of a running process what it would do with a URL, and prints it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::args::ExplainArgs;
use crate::settings::{DebugAddress, debug_address};

/// For the whole conversation.
const DEADLINE: Duration = Duration::from_secs(10);
/// Bytes of an answer.
const ANSWER_MAX: usize = 16 << 20;

/// Ends with 0 when a route serves the URL, with 1 when none does, and with 2 when nobody can be asked.
pub(crate) async fn main(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let address = debug_address("--debug", &args.debug)?;
    let asked = timeout(DEADLINE, ask(&address, &question(&args.url, args.json))).await;
    let (status, answer) = asked
        .context("no answer in time")
        .and_then(|answered| answered)
        .with_context(|| format!("asking the process at --debug {}", args.debug))?;
    match status {
        StatusCode::OK | StatusCode::NOT_FOUND => {
            println!("{}", answer.trim_end());
            Ok(if status == StatusCode::OK { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        other => bail!("{other}: {}", answer.trim_end()),
    }
}

/// The path and query of the question.
fn question(url: &str, json: bool) -> String {
    let format = if json { "json" } else { "text" };
    let query =
        form_urlencoded::Serializer::new(String::new()).append_pair("url", url).append_pair("format", format).finish();
    format!("/debug/explain?{query}")
}

async fn ask(address: &DebugAddress, question: &str) -> anyhow::Result<(StatusCode, String)> {
    match address {
        DebugAddress::Off => bail!("dumps are off"),
        DebugAddress::Tcp(wish) => {
            let stream = TcpStream::connect(wish.address).await?;
            converse(stream, &wish.address.to_string(), question).await
        }
        DebugAddress::Unix(path) => converse(UnixStream::connect(path).await?, "localhost", question).await,
    }
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: &str,
    question: &str,
) -> anyhow::Result<(StatusCode, String)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(question).header(http::header::HOST, host).body(Empty::<Bytes>::new())?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await.map_err(anyhow::Error::from_boxed)?;
        anyhow::Ok((status, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
    };
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        // The connection may end before the last of the answer has been read from it.
        ended = connection => {
            ended?;
            exchange.await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_is_encoded() {
        assert_eq!(
            question("https://a.example/b?c=d&e", true),
            "/debug/explain?url=https%3A%2F%2Fa.example%2Fb%3Fc%3Dd%26e&format=json"
        );
    }
}
