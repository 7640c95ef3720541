//! The history of publications with their causes, and the commands of an operator. Commands are JSON by `POST`: a web
//! page cannot send that to an address of the machine without a CORS preflight, and no handler here answers one. A
//! `POST` with an `Origin` header is refused before it gets here.

use std::fmt::{self, Display};
use std::time::SystemTime;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tidegate_config::model::Generation;
use tidegate_control::{Coalesced, Command, CommandRefusal, Commanded, Publication, RecentPublications, Sample, Unit};

use super::{Debug, not_running};

/// The number of publications shown by default.
const LAST: usize = 100;

#[derive(Deserialize)]
pub(super) struct HistoryQuestion {
    /// The number of latest publications to show.
    last: Option<usize>,
    /// Shows only publications that may have changed this host, as rules write it.
    host: Option<String>,
    format: Option<String>,
}

pub(super) async fn history_page(State(debug): State<Debug>, Query(question): Query<HistoryQuestion>) -> Response {
    let HistoryQuestion { last, host, format } = question;
    let Some(past) = debug.view.history(last.unwrap_or(LAST), host).await else { return not_running() };
    match format.as_deref() {
        Some("text") => Text(&past).to_string().into_response(),
        _ => Json(past).into_response(),
    }
}

/// The routes of commands.
pub(super) fn commands() -> Router<Debug> {
    Router::new()
        .route("/debug/freeze", post(freeze))
        .route("/debug/thaw", post(thaw))
        .route("/debug/rollback", post(rollback))
}

/// The same routes where commands are refused because others can reach the address.
pub(super) fn no_commands() -> Router<Debug> {
    let refused =
        || async { (StatusCode::FORBIDDEN, "commands are accepted only on a loopback address or a unix socket\n") };
    ["/debug/freeze", "/debug/thaw", "/debug/rollback"]
        .into_iter()
        .fold(Router::new(), |pages, path| pages.route(path, post(refused)))
}

#[derive(Deserialize)]
struct Format {
    format: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Earlier {
    generation: u64,
}

async fn freeze(debug: State<Debug>, format: Query<Format>, _: Json<Nothing>) -> Response {
    commanded(debug, Command::Freeze, format).await
}

async fn thaw(debug: State<Debug>, format: Query<Format>, _: Json<Nothing>) -> Response {
    commanded(debug, Command::Thaw, format).await
}

async fn rollback(debug: State<Debug>, format: Query<Format>, earlier: Json<Earlier>) -> Response {
    commanded(debug, Command::Rollback(Generation(earlier.generation)), format).await
}

/// The result of a command.
#[derive(Serialize)]
struct Done {
    command: Command,
    #[serde(flatten)]
    effect: Commanded,
}

/// Responds with 200 and the generation published by the command, with 404 if there is no such generation, and with 409
/// if there is nothing to do.
async fn commanded(State(debug): State<Debug>, command: Command, Query(Format { format }): Query<Format>) -> Response {
    match debug.view.command(command).await {
        None => not_running(),
        Some(Ok(effect)) if format.as_deref() == Some("text") => {
            let Commanded { generation, changed } = &effect;
            format!("{command}: published as generation {generation}{}\n", Changed(changed)).into_response()
        }
        Some(Ok(effect)) => Json(Done { command, effect }).into_response(),
        Some(Err(refusal)) => {
            let status = match refusal {
                CommandRefusal::NotKept { .. } => StatusCode::NOT_FOUND,
                CommandRefusal::Starting => StatusCode::SERVICE_UNAVAILABLE,
                CommandRefusal::NotHeld | CommandRefusal::HeldAlready(_) => StatusCode::CONFLICT,
            };
            (status, format!("{refusal}\n")).into_response()
        }
    }
}

/// Plain text, the latest publication last.
struct Text<'a>(&'a RecentPublications);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecentPublications { held, oldest, apart, newest, publications } = self.0;
        for publication in publications {
            write_publication(publication, f)?;
        }
        match held {
            Some(held) => writeln!(f, "Held by an operator: generation {newest} has the routes of generation {held}.")?,
            None => writeln!(f, "Generation {newest} serves.")?,
        }
        let Some(oldest) = oldest else { return Ok(()) };
        write!(f, "Generations {oldest} to {newest} can be rolled back to")?;
        match apart {
            Some(apart) => writeln!(f, ", and so can {apart}, which was held last."),
            None => writeln!(f, "."),
        }
    }
}

fn write_publication(publication: &Publication, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Publication { generation, at, changes, held, coalesced } = publication;
    write!(f, "{}  generation {generation}", time(*at))?;
    if let Some(held) = held {
        write!(f, ", with the routes of generation {held}")?;
    }
    sampled(&changes.units.routing, "; ", f)?;
    sampled(&changes.units.endpoints, "; ", f)?;
    if let Some(Coalesced { first, since, publications }) = coalesced {
        write!(f, ", the last of {publications} times since generation {first} at {}", time(*since))?;
    }
    writeln!(f)?;
    for cause in &changes.causes.first {
        writeln!(f, "    {cause}")?;
    }
    match changes.causes.total - changes.causes.first.len() {
        0 => Ok(()),
        more => writeln!(f, "    and {more} more"),
    }
}

/// The routing that a command has changed.
struct Changed<'a>(&'a Sample<Unit>);

impl Display for Changed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.total == 0 {
            return f.write_str("; nothing has changed");
        }
        f.write_str("; changed")?;
        sampled(self.0, ": ", f)
    }
}

fn sampled<T: Display>(sample: &Sample<T>, before: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some((first, rest)) = sample.first.split_first() else { return Ok(()) };
    write!(f, "{before}{first}")?;
    for item in rest {
        write!(f, ", {item}")?;
    }
    match sample.total - sample.first.len() {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
    }
}

fn time(at: SystemTime) -> impl Display {
    humantime::format_rfc3339_millis(at)
}
