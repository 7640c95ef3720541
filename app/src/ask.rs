//! The client of a running process's debug address, which `explain`, `history`, `freeze`, `thaw` and `rollback` use.

use std::io::{self, Write as _};
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

/// The deadline of the whole exchange.
const DEADLINE: Duration = Duration::from_secs(10);
/// The maximum size of an answer, in bytes.
const ANSWER_MAX: usize = 16 << 20;

/// Prints an answer. A reader that has closed the pipe, as `head` does after its lines, has what it wants.
fn print(answer: &str) -> io::Result<()> {
    match writeln!(io::stdout().lock(), "{answer}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// A request to a running process.
#[derive(Debug)]
pub(crate) struct Question {
    path: String,
    /// The parameters of a command, as JSON; `None` for a query.
    command: Option<String>,
}

impl Question {
    /// Queries a page with these parameters, as JSON or as text.
    pub(crate) fn page(path: &str, parameters: &[(&str, &str)], args: &AskArgs) -> Self {
        let format = if args.json { "json" } else { "text" };
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(parameters).append_pair("format", format);
        Self { path: format!("{path}?{}", query.finish()), command: None }
    }

    /// Sends a command with its parameters.
    pub(crate) fn command(path: &str, words: &serde_json::Value, args: &AskArgs) -> Self {
        Self { command: Some(words.to_string()), ..Self::page(path, &[], args) }
    }

    /// Sends the request and prints the answer. The exit code is 0 on success, 1 if the object does not exist or the
    /// command cannot be done, and 2 if the process cannot be reached.
    pub(crate) async fn put(&self, args: &AskArgs) -> anyhow::Result<ExitCode> {
        let address = debug_address("--debug", &args.debug)?;
        let asked = timeout(DEADLINE, self.ask(&address)).await;
        let (status, answer) = asked
            .context("no answer in time")
            .and_then(|answered| answered)
            .with_context(|| format!("querying the process at --debug {}", args.debug))?;
        let answer = answer.trim_end();
        match status {
            StatusCode::OK => {
                print(answer)?;
                Ok(ExitCode::SUCCESS)
            }
            StatusCode::NOT_FOUND | StatusCode::CONFLICT => {
                print(answer)?;
                Ok(ExitCode::FAILURE)
            }
            other => bail!("{other}: {answer}"),
        }
    }

    async fn ask(&self, address: &DebugAddress) -> anyhow::Result<(StatusCode, String)> {
        match address {
            DebugAddress::Off => bail!("--debug is off: there is no address to query"),
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
            // The connection may end before the answer has been read to its end.
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
