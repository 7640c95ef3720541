//! Raw requests to the API server.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::client;

/// A user of an API server. Every request has a connection of its own, so that a restart of the server is no concern of
/// it.
#[derive(Debug, Clone)]
pub struct Api {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
}

impl Api {
    /// One request; a body is JSON of this content type.
    ///
    /// # Errors
    /// When there is no answer, or one that is no JSON (a text becomes a JSON string).
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> Result<(StatusCode, Value), String> {
        let request = Request::builder().method(method).uri(path).header("host", self.address.to_string());
        let mut request = request.header("authorization", format!("Bearer {}", self.token));
        if let Some((content_type, _)) = body {
            request = request.header("content-type", content_type);
        }
        let bytes = body.map_or_else(Bytes::new, |(_, value)| value.to_string().into());
        let request = request.body(Full::new(bytes)).map_err(|error| error.to_string())?;
        let stream = client::connect_tls(self.address, "localhost", &[b"http/1.1"]).await?;
        let answer = client::sent(stream, request).await?;
        let value = serde_json::from_str(&answer.body).unwrap_or(Value::String(answer.body));
        Ok((answer.status, value))
    }

    /// An object or a list.
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

    /// Deletes an object, with its own grace.
    pub async fn delete(&self, path: &str) -> Value {
        self.expect(Method::DELETE, path, None).await
    }

    async fn expect(&self, method: Method, path: &str, body: Option<(&str, &Value)>) -> Value {
        let (status, answer) = self.ask(method, path, body).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(status.is_success(), "{path}: {status} {answer}");
        answer
    }
}
