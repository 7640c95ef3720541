//! Raw requests to the API server.

use std::net::SocketAddr;
use std::path::Path;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::client::{self, Answer};

/// A user of an API server. Every request has a connection of its own, so that a restart of the server does not affect
/// it.
#[derive(Debug, Clone)]
pub struct Api {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
}

impl Api {
    /// The server and the user of a kubeconfig that names one of each, and its server by address.
    #[must_use]
    pub fn of(kubeconfig: &Path) -> Self {
        let text = std::fs::read_to_string(kubeconfig).expect("a kubeconfig");
        let config: Value = serde_saphyr::from_str(&text).expect("YAML");
        let server = config["clusters"][0]["cluster"]["server"].as_str().expect("a server");
        let address = server.trim_start_matches("https://").parse().expect("an address");
        Self { address, token: config["users"][0]["user"]["token"].as_str().expect("a token").to_owned() }
    }

    /// Sends one request, with a body of any type, and returns its response.
    ///
    /// # Errors
    /// When there is no response.
    pub async fn raw(
        &self,
        method: Method,
        path: &str,
        accept: Option<&str>,
        body: Option<(&str, String)>,
    ) -> Result<Answer, String> {
        let request = Request::builder().method(method).uri(path).header("host", self.address.to_string());
        let mut request = request.header("authorization", format!("Bearer {}", self.token));
        request = request.header("accept", accept.unwrap_or("application/json"));
        let mut bytes = Bytes::new();
        if let Some((content_type, text)) = body {
            request = request.header("content-type", content_type);
            bytes = text.into();
        }
        let request = request.body(Full::new(bytes)).map_err(|error| error.to_string())?;
        let stream = client::connect_tls(self.address, "localhost", &[b"http/1.1"]).await?;
        client::sent(stream, request).await
    }

    /// Sends one request; a body is JSON of this content type. A response that is not JSON becomes a JSON string.
    ///
    /// # Errors
    /// When there is no response.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> Result<(StatusCode, Value), String> {
        let body = body.map(|(content_type, value)| (content_type, value.to_string()));
        let answer = self.raw(method, path, None, body).await?;
        Ok((answer.status, serde_json::from_str(&answer.body).unwrap_or(Value::String(answer.body))))
    }

    /// Reads an object or a list.
    pub async fn get(&self, path: &str) -> Value {
        self.expect(Method::GET, path, None).await
    }

    /// Creates an object in a collection.
    pub async fn create(&self, path: &str, object: &Value) -> Value {
        self.expect(Method::POST, path, Some(("application/json", object))).await
    }

    /// Changes an object by a merge patch.
    pub async fn merge(&self, path: &str, patch: &Value) -> Value {
        self.expect(Method::PATCH, path, Some(("application/merge-patch+json", patch))).await
    }

    /// Replaces one field, named by a JSON pointer, by a JSON patch.
    pub async fn replace(&self, path: &str, field: &str, value: &Value) -> Value {
        let patch = json!([{"op": "replace", "path": field, "value": value}]);
        self.expect(Method::PATCH, path, Some(("application/json-patch+json", &patch))).await
    }

    /// Deletes an object, with its own grace period.
    pub async fn delete(&self, path: &str) -> Value {
        self.expect(Method::DELETE, path, None).await
    }

    async fn expect(&self, method: Method, path: &str, body: Option<(&str, &Value)>) -> Value {
        let (status, answer) = self.ask(method, path, body).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(status.is_success(), "{path}: {status} {answer}");
        answer
    }
}
