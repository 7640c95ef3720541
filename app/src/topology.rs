//! `tidegate topology`: queries a running process for its attachments, and prints them.

use std::process::ExitCode;

use crate::args::TopologyArgs;
use crate::ask::Question;

/// Exits with 0 if there are any, with 1 if there are none, and with 2 if the process cannot be reached.
pub(crate) async fn main(args: &TopologyArgs) -> anyhow::Result<ExitCode> {
    let limit = args.limit.to_string();
    let mut parameters = vec![("limit", &*limit)];
    let asked = [("namespace", &args.of_namespace), ("name", &args.of_name), ("after", &args.after)];
    parameters.extend(asked.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?))));
    Question::page("/debug/topology", &parameters, &args.ask).put(&args.ask).await
}
