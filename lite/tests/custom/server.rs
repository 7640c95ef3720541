//! A server without a network, with requests in JSON.

use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tidegate_lite::{Lite, LiteService};
use tower::ServiceExt as _;

/// The path of definitions.
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(crate) struct Server {
    service: LiteService,
}

pub(crate) struct Said {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

impl Said {
    pub(crate) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

impl Server {
    pub(crate) fn new() -> Self {
        Self { service: Lite::new().service() }
    }

    /// Sends one request, as `POST /path`. A body is JSON, in a PATCH a merge patch; `APPLY` is a server-side apply.
    pub(crate) async fn ask(&self, line: &str, body: Option<&Value>) -> Said {
        self.send(line, body, "application/json").await
    }

    pub(crate) async fn send(&self, line: &str, body: Option<&Value>, accept: &str) -> Said {
        // An apply is a PATCH of another type.
        let (method, path) = line.split_once(' ').unwrap();
        let (method, content) = match method {
            "PATCH" => (method, "application/merge-patch+json"),
            "APPLY" => ("PATCH", "application/apply-patch+yaml"),
            _ => (method, "application/json"),
        };
        let text = body.map(Value::to_string).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, content).header(ACCEPT, accept);
        let answer = self.service.clone().oneshot(request.body(Full::from(text)).unwrap()).await.unwrap();
        let status = answer.status().as_u16();
        let warnings = answer.headers().get_all("warning").iter().map(|one| one.to_str().unwrap().to_owned()).collect();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        Said { status, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null), warnings }
    }

    /// Checks the answer to a request.
    #[track_caller]
    pub(crate) fn gives<'a>(
        &'a self,
        line: &'a str,
        body: Option<&'a Value>,
        status: u16,
    ) -> impl Future<Output = Value> + 'a {
        let place = std::panic::Location::caller();
        async move {
            let said = self.ask(line, body).await;
            assert_eq!(said.status, status, "{place}: {line}: {}", said.body);
            said.body
        }
    }

    pub(crate) async fn define(&self, definition: &Value) {
        self.gives(&format!("POST {DEFINITIONS}"), Some(definition), 201).await;
    }

    /// The status of a condition of a definition, and its reason.
    pub(crate) async fn condition(&self, name: &str, of: &str) -> String {
        let definition = self.gives(&format!("GET {DEFINITIONS}/{name}"), None, 200).await;
        let conditions = definition["status"]["conditions"].as_array().unwrap();
        let found = conditions.iter().find(|one| one["type"] == of);
        found.map(|one| format!("{} {}", one["status"], one["reason"]).replace('"', "")).unwrap_or_default()
    }
}

/// A definition of this plural name in `example.com` with one version for each schema; the first version is stored.
pub(crate) fn definition(plural: &str, kind: &str, versions: &[(&str, Value)]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .enumerate()
        .map(|(nth, (name, schema))| {
            json!({"name": name, "served": true, "storage": nth == 0, "schema": {"openAPIV3Schema": schema}})
        })
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind}, "versions": versions,
        },
    })
}

/// A schema that accepts everything.
pub(crate) fn anything() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}
