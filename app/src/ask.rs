//! Asking a running process at its debug address: what `explain`, `history`, `freeze`, `thaw` and `rollback` do.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::args::AskArgs;
use crate::settings::{DebugAddress, debug_address};

/// For the whole conversation.
const DEADLINE: Duration = Duration::from_secs(10);
/// Bytes of an answer.
const ANSWER_MAX: usize = 16 << 20;

/// What is asked of a running process.
#[derive(Debug)]
pub(crate) struct Question {
    path: String,
    /// A command's words, as JSON; a mere question has none.
    command: Option<String>,
}

impl Question {
    /// The page with these parameters, as JSON or as text.
    pub(crate) fn page(path: &str, parameters: &[(&str, &str)], args: &AskArgs) -> Self {
        let format = if args.json { "json" } else { "text" };
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(parameters).append_pair("format", format);
        Self { path: format!("{path}?{}", query.finish()), command: None }
    }

    /// A command with its words.
    pub(crate) fn command(path: &str, words: &serde_json::Value, args: &AskArgs) -> Self {
        Self { command: Some(words.to_string()), ..Self::page(path, &[], args) }
    }

    /// Asks, and prints the answer: ends with 0 where that is what was asked for, with 1 where there is no such thing or it
    /// cannot be done, and with 2 when nobody can be asked.
    pub(crate) async fn put(&self, args: &AskArgs) -> anyhow::Result<ExitCode> {
        let address = debug_address("--debug", &args.debug)?;
        let asked = timeout(DEADLINE, self.ask(&address)).await;
        let (status, answer) = asked
            .context("no answer in time")
            .and_then(|answered| answered)
            .with_context(|| format!("asking the process at --debug {}", args.debug))?;
        let answer = answer.trim_end();
        match status {
            StatusCode::OK => {
                println!("{answer}");
                Ok(ExitCode::SUCCESS)
            }
            StatusCode::NOT_FOUND | StatusCode::CONFLICT => {
                println!("{answer}");
                Ok(ExitCode::FAILURE)
            }
            other => bail!("{other}: {answer}"),
        }
    }

    async fn ask(&self, address: &DebugAddress) -> anyhow::Result<(StatusCode, String)> {
        match address {
            DebugAddress::Off => bail!("dumps are off"),
            DebugAddress::Tcp(wish) => {
                let stream = TcpStream::connect(wish.address).await?;
                self.converse(stream, &wish.address.to_string()).await
            }
            DebugAddress::Unix(path) => self.converse(UnixStream::connect(path).await?, "localhost").await,
        }
    }

    async fn converse(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        host: &str,
    ) -> anyhow::Result<(StatusCode, String)> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::builder().uri(&self.path).header(HOST, host);
        let request = match &self.command {
            None => request.body(Full::default())?,
            Some(command) => request
                .method(Method::POST)
                .header(CONTENT_TYPE, "application/json")
                .body(Full::new(Bytes::from(command.clone())))?,
        };
        let exchange = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_MAX);
            let body = body.collect().await.map_err(anyhow::Error::from_boxed)?;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_encoded() {
        let args = AskArgs { json: true, ..AskArgs::default() };
        let question = Question::page("/debug/explain", &[("url", "https://a.example/b?c=d&e")], &args);
        assert_eq!(question.path, "/debug/explain?url=https%3A%2F%2Fa.example%2Fb%3Fc%3Dd%26e&format=json");
    }
}
