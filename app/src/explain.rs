//! `tidegate explain URL`: queries a running process for the route of a URL, and prints the explanation.

use std::process::ExitCode;

use crate::args::ExplainArgs;
use crate::ask::Question;

/// Exits with 0 if a route serves the URL, with 1 if none does, and with 2 if the process cannot be reached.
pub(crate) async fn main(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let mut parameters = vec![("url", &*args.url), ("method", &args.method)];
    parameters.extend(args.header.iter().map(|header| ("header", &**header)));
    Question::page("/debug/explain", &parameters, &args.ask).put(&args.ask).await
}
