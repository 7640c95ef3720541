//! `tidegate dev`: a folder of manifests, served on this machine. An embedded API server stands in for the cluster and
//! echo processes, or commands, for the pods; everything after them is the same as in `run`.

mod apply;
mod banner;
mod command;
mod definitions;
mod documents;
mod echo;
mod events;
mod fleet;
mod folder;
mod follow;
mod home;
mod keeper;
mod load;
mod node;
mod objects;
mod output;
mod probe;
mod process;
mod replica;
mod sets;
mod slice;
mod status;
mod strategy;
mod workload;

use std::process::ExitCode;

use anyhow::Context as _;
use tidegate_control::{ApiServer, Following};
use tidegate_lite::{Lite, Server};
use tokio::sync::watch;

pub(crate) use echo::main as echo;

use self::banner::Banner;
use self::fleet::{Fleet, Programs};
use self::home::Home;
use self::load::Load;
use crate::args::DevArgs;
use crate::settings::Dev;
use crate::signal::Signals;
use crate::wire::{Clients, Wired, host_addresses};
use crate::{logs, own};

/// The namespace of objects without one.
const NAMESPACE: &str = "default";

pub(crate) async fn main(args: &DevArgs) -> anyhow::Result<ExitCode> {
    let Dev { edge, folder, api, gateway_api, data_dir, run_commands } = Dev::try_from(args)?;
    logs::start(&edge.process.log_level, edge.process.log_form)?;
    let mut signals = Signals::listen().context("signals")?;
    let folder = folder.canonicalize().with_context(|| folder.display().to_string())?;
    let program = std::env::current_exe().context("the path of this program")?;
    let lite = match &data_dir {
        Some(data) => Lite::open(data).with_context(|| format!("--data-dir {}", data.display()))?,
        None => Lite::new(),
    };
    let server = Server::bind(lite.clone(), api).await.with_context(|| format!("--api {api}"))?;
    let home = Home::make(&server.kubeconfig()).context("a folder for the kubeconfig")?;
    let logs = lite.clone();
    let client = move || kube::Client::new(lite.service(), NAMESPACE);

    let api_server = ApiServer::at(own::sockets([server.address()].into_iter(), &host_addresses()).iter().copied());
    let following = Following::new().context("metrics")?;
    let clients = Clients { watch: client(), write: client(), forward: None, api_server, following };
    let ingresses = edge.control.sources.ingress.clone();
    let mut wired = Wired::start(edge, clients, Vec::new())?;
    let (loaded, steady) = (watch::Sender::new(None), watch::Sender::new(0));
    let banner = Banner {
        folder: folder.clone(),
        kubeconfig: home.kubeconfig(),
        admin: wired.admin,
        debug: wired.debug.clone(),
        bound: wired.bound(),
        published: wired.published.clone(),
        generation: wired.view.generation(),
        loaded: loaded.subscribe(),
        steady: steady.subscribe(),
        draining: wired.draining.clone(),
    };
    let stop = wired.stop.clone();
    wired.tasks.once("api", server.serve(stop.cancelled_owned()));
    let (stop, fleet_client) = (wired.stop.clone(), client.clone());
    wired.tasks.keep("fleet", move || {
        let programs = Programs { echo: program.as_path().into(), run_commands };
        Fleet::new(fleet_client(), logs.clone(), programs, steady.clone()).run(stop.clone())
    });
    let stop = wired.stop.clone();
    wired.tasks.keep("folder", move || {
        let load = Load::new(client(), folder.clone(), ingresses.clone(), loaded.clone());
        if gateway_api { load } else { load.without_definitions() }.run(stop.clone())
    });

    tokio::select! {
        over = wired.until_over(&mut signals) => over,
        never = banner.print() => match never {},
    }
}
