//! Debug dumps on an address of their own: routes, topology, findings, explanations, history; and the commands of an
//! operator. They hold no header value, no key and no token, but a reader of them learns every route.

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

/// The number of hosts shown by default.
const HOSTS_MAX: usize = 10_000;

/// The state behind the dumps.
#[derive(Clone, Debug)]
pub(crate) struct Debug {
    pub(crate) published: Published,
    pub(crate) view: View,
}

impl Debug {
    /// `/debug/routes`, `/debug/topology`, `/debug/findings`, `/debug/explain` and `/debug/history`. The commands
    /// `/debug/freeze`, `/debug/thaw` and `/debug/rollback` are enabled only if `private`, that is, if no other machine
    /// or user can reach the address; they are refused to web pages.
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
    /// Shows only this host pattern, as the dump writes it.
    host: Option<String>,
    /// The maximum number of hosts.
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

/// The response to an invalid query, with the reason.
fn bad_request(why: &str) -> Response {
    (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response()
}

fn not_running() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "the control loop is not running\n").into_response()
}
