//! `tidegate history`, `freeze`, `thaw` and `rollback`: the publications of a running process with their causes, and
//! the choice of the routes that it serves.

use std::process::ExitCode;

use serde_json::json;

use crate::args::{AskArgs, HistoryArgs, RollbackArgs};
use crate::ask::Question;

/// Prints the last publications.
pub(crate) async fn main(args: &HistoryArgs) -> anyhow::Result<ExitCode> {
    let last = args.last.to_string();
    let mut parameters = vec![("last", &*last)];
    parameters.extend(args.host.as_deref().map(|host| ("host", host)));
    Question::page("/debug/history", &parameters, &args.ask).put(&args.ask).await
}

/// Freezes the current routes.
pub(crate) async fn freeze(args: &AskArgs) -> anyhow::Result<ExitCode> {
    Question::command("/debug/freeze", &json!({}), args).put(args).await
}

/// Returns to the routes of the cluster.
pub(crate) async fn thaw(args: &AskArgs) -> anyhow::Result<ExitCode> {
    Question::command("/debug/thaw", &json!({}), args).put(args).await
}

/// Serves the routes of an earlier generation, and keeps them.
pub(crate) async fn rollback(args: &RollbackArgs) -> anyhow::Result<ExitCode> {
    Question::command("/debug/rollback", &json!({ "generation": args.generation }), &args.ask).put(&args.ask).await
}
