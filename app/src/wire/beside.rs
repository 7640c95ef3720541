//! The tasks beside the threads of the proxy: sweeps, memory, the store of limits, and closed sockets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_config::model::BindKey;
use tidegate_control::BindFailures;
use tidegate_proxy::{Bound, BoundBind, Memory, Proxy, Sweeper};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::LISTENERS_LOST_MAX;
use crate::resources;
use crate::supervise::Supervisor;

/// The interval of checks of the memory.
const MEMORY_EVERY: Duration = Duration::from_millis(250);

/// The maximum time that series and state of removed objects are kept.
const SWEEP_EVERY: Duration = Duration::from_secs(15);

/// Keeps the tasks that the proxy needs beside its threads.
pub(super) fn keep_beside(
    proxy: &Proxy,
    failed: watch::Sender<BindFailures>,
    tasks: &mut Supervisor,
    stop: &CancellationToken,
) {
    let (sweeper, ending) = (proxy.sweeper(), stop.clone());
    tasks.keep("sweep", move || sweep(sweeper.clone(), ending.clone()));
    let (memory, ending) = (proxy.memory(), stop.clone());
    tasks.keep("memory", move || watch_memory(memory.clone(), ending.clone()));
    if let Some(store) = proxy.limit_store() {
        let ending = stop.clone();
        tasks.keep("limits-store", move || store.clone().run(ending.clone()));
    }
    let (bound, ending) = (proxy.bound(), stop.clone());
    tasks.keep("sockets", move || report_unopened(bound.clone(), failed.clone(), ending.clone()));
}

/// Removes state that outlived its objects, at intervals.
async fn sweep(sweeper: Sweeper, stop: CancellationToken) {
    while stop.run_until_cancelled(sleep(SWEEP_EVERY)).await.is_some() {
        sweeper.sweep();
    }
}

/// Compares the memory of the process with its limit, at intervals.
async fn watch_memory(memory: Memory, stop: CancellationToken) {
    while stop.run_until_cancelled(sleep(MEMORY_EVERY)).await.is_some() {
        if let Some(kib) = resources::resident_kib() {
            memory.note_resident(kib);
        }
    }
}

/// Tells the control loop which sockets cannot be opened, those that stay closed for longer than a moment: a process
/// that hands its sockets over keeps them until it ends.
async fn report_unopened(
    mut bound: watch::Receiver<Bound>,
    failed: watch::Sender<BindFailures>,
    stop: CancellationToken,
) {
    loop {
        let closed = |(key, bind): (&BindKey, &BoundBind)| {
            let error = bind.error().filter(|_| bind.threads() == 0)?;
            Some((*key, error.into()))
        };
        let now: BTreeMap<BindKey, Arc<str>> = bound.borrow_and_update().iter().filter_map(closed).collect();
        failed.send_if_modified(|before| {
            let moved = **before != now;
            *before = Arc::new(now);
            moved
        });
        let changed = async {
            let is_open = bound.changed().await.is_ok();
            sleep(LISTENERS_LOST_MAX).await;
            is_open
        };
        if stop.run_until_cancelled(changed).await != Some(true) {
            return;
        }
    }
}
