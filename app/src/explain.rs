//! `tidegate explain URL`: asks a running process what it would do with a request for a URL, and prints it.

use std::process::ExitCode;

use crate::args::ExplainArgs;
use crate::ask::Question;

/// Ends with 0 when a route serves the URL, with 1 when none does, and with 2 when nobody can be asked.
pub(crate) async fn main(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let mut parameters = vec![("url", &*args.url), ("method", &args.method)];
    parameters.extend(args.header.iter().map(|header| ("header", &**header)));
    Question::page("/debug/explain", &parameters, &args.ask).put(&args.ask).await
}
