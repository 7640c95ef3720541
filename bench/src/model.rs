//! `model`: the memory of a route in the control loop and the routing model, counted by the allocator: bytes that were
//! asked for, without what an allocator adds, and so the same in every run.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;
use tidegate_config::object::Kind;
use tidegate_control::Event;
use tidegate_control::options::Options;

use crate::allocation::live_bytes;
use crate::clock::now;
use crate::core_loop::Core;
use crate::identity::Identity;
use crate::peer::{Route, Source, Target, one_route, own_route};
use crate::subject::edge::{binds, for_gateways, lists, projected};
use crate::table::{Output, table};

/// The maximum of `--check`, in bytes a route.
const ROUTE_BYTES_MAX: usize = 4096;

/// Counts the memory of routes, each with a Service and an EndpointSlice of its own.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The numbers of routes.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
    routes: Vec<usize>,
    /// Fails if a route takes more than 4 KiB.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    output: Output,
}

/// The order in which the routes arrive.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Arrival {
    /// All of them in the lists at the start.
    Listed,
    /// One after the other, in the order of their names.
    Created,
}

impl Arrival {
    const fn title(self) -> &'static str {
        match self {
            Self::Listed => "listed at the start",
            Self::Created => "created one by one",
        }
    }
}

#[derive(Debug, Serialize)]
struct Row {
    source: Source,
    routes: usize,
    arrival: Arrival,
    /// Bytes a route.
    bytes: usize,
}

/// Counts, and prints a table.
///
/// # Errors
/// When an object cannot be read, or `--check` fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let identity = Identity::new()?;
    let mut rows = Vec::new();
    for source in [Source::Ingress, Source::Gateway] {
        for routes in &args.routes {
            for arrival in [Arrival::Listed, Arrival::Created] {
                let bytes = bytes(source, *routes, arrival, &identity)?;
                rows.push(Row { source, routes: *routes, arrival, bytes });
            }
        }
    }
    args.output.tell(&rows, |rows| {
        let cells = rows.iter().map(|Row { source, routes, arrival, bytes }| {
            vec![source.title().to_owned(), arrival.title().to_owned(), routes.to_string(), bytes.to_string()]
        });
        println!("{}", table(2, ["route", "arrival", "routes", "bytes a route"], cells));
    })?;
    let large = rows.iter().find(|row| args.check && row.bytes > ROUTE_BYTES_MAX);
    large.map_or(Ok(()), |row| anyhow::bail!("more than {ROUTE_BYTES_MAX} bytes a route: {row:?}"))
}

/// The bytes that each of `routes` routes adds to a core with one route.
fn bytes(source: Source, routes: usize, arrival: Arrival, identity: &Identity) -> anyhow::Result<usize> {
    let upstream = SocketAddr::from((Ipv4Addr::LOCALHOST, 9000));
    let (mut options, ports) = match source {
        Source::Ingress => (Options { binds: binds(), ..Options::default() }, None),
        Source::Gateway => (for_gateways(), Some([8080, 8443])),
    };
    options.addresses.allow_loopback = true;
    let base = one_route(upstream, identity, ports);
    let more = (0..routes).flat_map(|number| own_route(source, &Route::numbered(number, Target::Own), upstream));
    let (listed, created): (Vec<Value>, Vec<Value>) = match arrival {
        Arrival::Listed => (base.iter().cloned().chain(more).collect(), Vec::new()),
        Arrival::Created => (base.clone(), more.collect()),
    };
    let of_base = held(&options, &base, &[])?;
    Ok(held(&options, &listed, &created)?.saturating_sub(of_base) / routes)
}

/// The bytes of a core that has listed objects, and that others were created for, one by one.
fn held(options: &Options, listed: &[Value], created: &[Value]) -> anyhow::Result<usize> {
    let before = live_bytes();
    let mut core = Core::start(options.clone(), lists(listed)?, now())?;
    for value in created {
        let kind = Kind::ALL.into_iter().find(|kind| value["kind"] == kind.as_str());
        for object in projected(kind.context("a kind that is not read")?, std::slice::from_ref(value))? {
            core.take(Event::Applied { projected: Box::new(object), received: now() })?;
        }
    }
    let bytes = live_bytes().saturating_sub(before);
    drop(core);
    Ok(bytes)
}
