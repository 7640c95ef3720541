//! `tidegate topology`: asks a running process what is attached to what, and prints it.

use std::process::ExitCode;

use crate::args::TopologyArgs;
use crate::ask::Question;

/// Ends with 0 when there is anything of the kind, with 1 when there is not, and with 2 when nobody can be asked.
pub(crate) async fn main(args: &TopologyArgs) -> anyhow::Result<ExitCode> {
    let limit = args.limit.to_string();
    let mut parameters = vec![("limit", &*limit)];
    let asked = [("namespace", &args.of_namespace), ("name", &args.of_name), ("after", &args.after)];
    parameters.extend(asked.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?))));
    Question::page("/debug/topology", &parameters, &args.ask).put(&args.ask).await
}
