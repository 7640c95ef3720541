//! Dumps of what the process knows, on an address of their own: routes, topology, findings, explanations, history; and the
//! few commands that an operator may give. They hold no header value, no key and no token, but whoever reads them knows every route.

mod access;
mod explain;
mod history;
mod routes;
mod topology;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tidegate_config::finding::{Finding, Severity};
use tidegate_config::published::Published;
use tidegate_control::View;

pub(crate) use access::{bind_unix, guarded, unlink};
pub(crate) use routes::{Table, table};

/// Hosts shown where the question sets no limit.
const HOSTS_MAX: usize = 10_000;

/// What the dumps are made of.
#[derive(Clone, Debug)]
pub(crate) struct Debug {
    pub(crate) published: Published,
    pub(crate) view: View,
}

impl Debug {
    /// `/debug/routes`, `/debug/topology`, `/debug/findings`, `/debug/explain` and `/debug/history`. The commands
    /// `/debug/freeze`, `/debug/thaw` and `/debug/rollback` are taken only where `private` says that nobody else can
    /// come, and from no web page.
    pub(crate) fn pages(self, private: bool) -> Router {
        let pages = Router::new()
            .route("/debug/routes", get(routes_page))
            .route("/debug/topology", get(topology::page))
            .route("/debug/findings", get(findings_page))
            .route("/debug/explain", get(explain::page))
            .route("/debug/history", get(history::history_page))
            .merge(if private { history::commands() } else { history::no_commands() });
        access::without_origin(pages).with_state(self)
    }
}

#[derive(Deserialize)]
struct RoutesQuestion {
    /// Only this host pattern, as the dump writes it.
    host: Option<String>,
    /// At most so many hosts.
    limit: Option<usize>,
}

async fn routes_page(State(debug): State<Debug>, Query(question): Query<RoutesQuestion>) -> Response {
    let limit = question.limit.unwrap_or(HOSTS_MAX);
    Json(table(&debug.published.pin(), question.host.as_deref(), limit)).into_response()
}

/// A finding with its severity and the sentence that users read.
#[derive(Serialize)]
struct FindingView<'a> {
    severity: Severity,
    message: String,
    #[serde(flatten)]
    finding: &'a Finding,
}

impl<'a> FindingView<'a> {
    fn of(finding: &'a Finding) -> Self {
        Self { severity: finding.problem.severity(), message: finding.to_string(), finding }
    }
}

async fn findings_page(State(debug): State<Debug>) -> Response {
    let Some(findings) = debug.view.findings().await else { return not_running() };
    Json(findings.iter().map(FindingView::of).collect::<Vec<_>>()).into_response()
}

/// A question that cannot be answered, and why.
fn bad_request(why: &str) -> Response {
    (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response()
}

fn not_running() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "the control loop does not run now\n").into_response()
}
