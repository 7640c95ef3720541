//! Stands in for the controllers of a cluster: runs a process for every replica of every Deployment, and keeps their
//! ReplicaSets and Pods, the EndpointSlices of Services and the status of Deployments. It is level-triggered: it acts
//! on the current state, whatever the order of events.

mod write;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde_json::Value;
use tidegate_config::object::ObjectName;
use tidegate_lite::Lite;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::command::Command;
use super::events::{About, Kind, Recorder};
use super::follow::{Seen, follow};
use super::keeper::{Keeper, OwnedKind};
use super::node;
use super::objects::set_name;
use super::probe::Probe;
use super::process::Program;
use super::replica::{self, Happened, Job};
use super::sets::Sets;
use super::slice::{self, KEEPER, KEEPER_NAME};
use super::status::{refusal, stamp};
use super::workload::{Desired, Ended, Phase, REPLICAS_MAX, Replica, plan};
use crate::clock;

pub(super) use self::write::is_written;

/// The capacity of the channel of events.
const WORDS_MAX: usize = 256;
/// The pause after a failed write.
const RETRY: Duration = Duration::from_secs(1);
/// The time for processes to end at shutdown.
const END: Duration = Duration::from_secs(3);

/// The programs that may run for pods.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    /// This program, which contains an echo server.
    pub(super) echo: Arc<Path>,
    /// `true` if the commands of templates are run.
    pub(super) run_commands: bool,
}

/// The state of the stand-in.
pub(super) struct Fleet {
    client: kube::Client,
    /// The storage of the processes' logs.
    lite: Lite,
    programs: Programs,
    /// Receives the number of Deployments whose replicas are all ready and in their slices.
    steady: watch::Sender<usize>,
    deployments: BTreeMap<ObjectName, Deployment>,
    services: BTreeMap<ObjectName, Service>,
    replicas: BTreeMap<Arc<str>, (Replica, CancellationToken)>,
    /// The slices on the server.
    written: BTreeMap<ObjectName, EndpointSlice>,
    sets: Sets,
    keeper: Keeper,
    recorder: Recorder,
    /// The number of replicas without room, of each Deployment that has such.
    refused: BTreeMap<ObjectName, usize>,
    processes: JoinSet<()>,
}

impl Programs {
    /// The program of a pod template.
    fn of(&self, template: &Value) -> Program {
        match Command::of(template) {
            Some(command) if self.run_commands => Program::Command(command),
            command => Program::Echo { path: Arc::clone(&self.echo), ignored: command.is_some() },
        }
    }
}

impl Fleet {
    pub(super) fn new(client: kube::Client, lite: Lite, programs: Programs, steady: watch::Sender<usize>) -> Self {
        Self {
            keeper: Keeper::new(client.clone()),
            recorder: Recorder::start(client.clone()),
            refused: BTreeMap::new(),
            sets: Sets::default(),
            client,
            lite,
            programs,
            steady,
            deployments: BTreeMap::new(),
            services: BTreeMap::new(),
            replicas: BTreeMap::new(),
            written: BTreeMap::new(),
            processes: JoinSet::new(),
        }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        let (sender, mut happened) = mpsc::channel::<(Arc<str>, Happened)>(WORDS_MAX);
        let (deployment_seen, mut deployments) = mpsc::channel(WORDS_MAX);
        let (service_seen, mut services) = mpsc::channel(WORDS_MAX);
        let (pod_seen, mut pods) = mpsc::channel(WORDS_MAX);
        let (set_seen, mut sets) = mpsc::channel(WORDS_MAX);
        let mut followers = JoinSet::new();
        followers.spawn(follow(Api::all(self.client.clone()), pod_seen));
        followers.spawn(follow(Api::all(self.client.clone()), set_seen));
        followers.spawn(follow(Api::all(self.client.clone()), deployment_seen));
        followers.spawn(follow(Api::all(self.client.clone()), service_seen));
        let mut adopted = self.adopt().await;
        let mut settled = adopted;
        loop {
            let retry = async { if settled { std::future::pending().await } else { sleep(RETRY).await } };
            tokio::select! {
                () = stop.cancelled() => break,
                // A failed follower ends this run of the task; the next run begins with lists.
                _ = followers.join_next() => break,
                () = retry => {}
                Some(seen) = deployments.recv() => see(&mut self.deployments, seen),
                Some(seen) = services.recv() => see(&mut self.services, seen),
                Some(seen) = pods.recv() => self.see_pod(seen),
                Some(seen) = sets.recv() => self.see_set(seen),
                Some((pod, what)) = happened.recv() => self.note(&pod, &what),
            }
            // Further events that have arrived are taken along, so that a burst of changes costs one round.
            while let Ok(seen) = deployments.try_recv() {
                see(&mut self.deployments, seen);
            }
            while let Ok(seen) = services.try_recv() {
                see(&mut self.services, seen);
            }
            while let Ok(seen) = pods.try_recv() {
                self.see_pod(seen);
            }
            let released = self.sets.release(&mut self.keeper, &self.client, &self.deployments).await;
            self.act(&sender).await;
            if !adopted {
                adopted = self.adopt().await;
            }
            settled = self.write().await && adopted && released;
            if settled {
                self.steady.send_replace(self.steady());
            }
        }
        self.end_all(happened).await;
    }

    /// Writes the Node, and takes over the slices of an earlier run, so that wrong ones are deleted.
    async fn adopt(&mut self) -> bool {
        let slices: Api<EndpointSlice> = Api::all(self.client.clone());
        let ours = ListParams::default().labels(&format!("{KEEPER}={KEEPER_NAME}"));
        let Ok(list) = slices.list(&ours).await else { return false };
        for slice in list.items {
            if let Some(name) = slice::name(&slice) {
                // Slices written in this run are newer than the list.
                self.written.entry(name).or_insert(slice);
            }
        }
        let node = node::write(&self.client, &stamp(clock::wall())).await;
        self.keeper.adopt().await.is_ok() && node.is_ok()
    }

    /// Handles a change of a Pod. A deleted Pod is a replica to end; the Pod's finalizer is removed when its process
    /// has ended.
    fn see_pod(&mut self, seen: Seen<Pod>) {
        let going = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
        let ended: Vec<Pod> = match seen {
            Seen::All(all) => all.into_iter().filter(going).collect(),
            Seen::Put(pod) => Some(pod).filter(going).into_iter().collect(),
            Seen::Gone(pod) => {
                self.keeper
                    .forget(OwnedKind::Pod, &ObjectName::new(pod.namespace().unwrap_or_default(), pod.name_any()));
                vec![pod]
            }
        };
        ended.iter().for_each(|pod| self.end(&pod.name_any()));
    }

    fn see_set(&mut self, seen: Seen<ReplicaSet>) {
        match seen {
            Seen::All(all) => all.iter().for_each(|set| self.sets.see_orphan(set, false)),
            Seen::Put(set) => self.sets.see_orphan(&set, false),
            Seen::Gone(set) => {
                self.sets.see_orphan(&set, true);
                let name = ObjectName::new(set.namespace().unwrap_or_default(), set.name_any());
                self.keeper.forget(OwnedKind::ReplicaSet, &name);
            }
        }
    }

    /// Lets a process finish requests in flight.
    fn end(&mut self, pod: &str) {
        let Some((replica, end)) = self.replicas.get_mut(pod) else { return };
        if !replica.is_ending() {
            self.recorder.note(about(replica), "Killing", format!("Stopping container {}", replica.container()));
        }
        replica.phase = match replica.phase {
            Phase::Ready(port) => Phase::Ending(Some(port)),
            Phase::Ending(port) => Phase::Ending(port),
            Phase::Down | Phase::Running(_) => Phase::Ending(None),
        };
        replica.times.readiness = stamp(clock::wall());
        end.cancel();
    }

    fn note(&mut self, pod: &str, what: &Happened) {
        let Some((replica, _)) = self.replicas.get_mut(pod) else { return };
        let (was_ready, was_down, now) = (replica.is_ready(), replica.phase == Phase::Down, stamp(clock::wall()));
        match (what, replica.phase) {
            (Happened::Gone, _) => return drop(self.replicas.remove(pod)),
            (Happened::Up(port), Phase::Ending(_)) => replica.phase = Phase::Ending(Some(*port)),
            (Happened::Up(port), _) => replica.phase = Phase::Ready(*port),
            (Happened::Running(_) | Happened::Unhealthy(_), Phase::Ending(_)) => {}
            (Happened::Running(port), _) => replica.phase = Phase::Running(*port),
            (Happened::Unhealthy(why), _) => {
                self.recorder.warn(about(replica), "Unhealthy", format!("Readiness probe failed: {why}"));
            }
            (Happened::Down(code), Phase::Down | Phase::Running(_) | Phase::Ready(_)) => {
                replica.phase = Phase::Down;
                replica.restarts = replica.restarts.saturating_add(1);
                let started = replica.times.running.take();
                replica.times.ended = code.map(|code| Ended { code, started, finished: now.clone() });
                let message = format!("Back-off restarting failed container {} in pod {pod}", replica.container());
                self.recorder.warn(about(replica), "BackOff", message);
            }
            (Happened::Down(_), Phase::Ending(_)) => replica.phase = Phase::Ending(None),
        }
        if was_down && matches!(replica.phase, Phase::Running(_) | Phase::Ready(_)) {
            replica.times.running = Some(now.clone());
            self.recorder.note(about(replica), "Started", "Container started");
        }
        if replica.is_ready() != was_ready {
            replica.times.readiness = now;
        }
    }

    /// Starts and ends processes.
    async fn act(&mut self, sender: &mpsc::Sender<(Arc<str>, Happened)>) {
        let of_deployments = self.deployments.values().filter_map(|one| self.sets.desired(one));
        let desired = self.sets.orphans().chain(of_deployments);
        let desired: BTreeMap<ObjectName, Desired> = desired.map(|one| (one.name.clone(), one)).collect();
        let left = self.replicas.values().map(|(replica, _)| replica.workload.clone());
        let mut names: Vec<ObjectName> = desired.keys().cloned().chain(left).collect();
        names.sort();
        names.dedup();
        for name in names {
            let desired = desired.get(&name);
            let room = REPLICAS_MAX.saturating_sub(self.replicas.len());
            let plan = plan(desired, &self.of(&name), room);
            self.refuse(&name, plan.refused);
            for pod in plan.end {
                self.tell_deletion(&pod);
                self.end(&pod);
            }
            let Some(desired) = desired else { continue };
            // News of a deleted Pod may come before that of its Deployment.
            if plan.start == 0 || !self.exists(desired).await {
                continue;
            }
            for _ in 0..plan.start {
                self.start(desired.replica(clock::draw_bits(), &stamp(clock::wall())), sender);
            }
        }
        while self.processes.try_join_next().is_some() {}
    }

    /// Tells once of a Deployment whose replicas have no room.
    fn refuse(&mut self, name: &ObjectName, refused: usize) {
        if refused == 0 {
            self.refused.remove(name);
        } else if self.refused.insert(name.clone(), refused).is_none() {
            let uid = self.deployments.get(name).and_then(|one| one.metadata.uid.clone()).unwrap_or_default();
            let about = About { kind: Kind::Deployment, name: name.clone(), uid };
            tracing::warn!(deployment = %name, "{}", refusal(refused));
            self.recorder.warn(about, "FailedCreate", refusal(refused));
        }
    }

    /// Tells of a Pod that is not wanted any more.
    fn tell_deletion(&self, pod: &str) {
        let Some((replica, _)) = self.replicas.get(pod) else { return };
        let set = set_name(&replica.workload.name, replica.revision);
        let name = ObjectName::new(&*replica.workload.namespace, set);
        if let Some(uid) = self.keeper.uid(OwnedKind::ReplicaSet, &name).map(str::to_owned) {
            let about = About { kind: Kind::ReplicaSet, name, uid };
            self.recorder.note(about, "SuccessfulDelete", format!("Deleted pod: {pod}"));
        }
    }

    /// Asks the server whether a Deployment still exists. Replicas without one need none.
    async fn exists(&self, desired: &Desired) -> bool {
        if !self.deployments.contains_key(&desired.name) {
            return true;
        }
        match self.api::<Deployment>(&desired.name).get_opt(&desired.name.name).await {
            Ok(Some(found)) => {
                found.metadata.deletion_timestamp.is_none() && found.metadata.uid.as_ref() == Some(&desired.uid)
            }
            Ok(None) => false,
            // If it is gone, the watch says so as soon as it works again.
            Err(_) => true,
        }
    }

    /// The number of Deployments with as many replicas ready as they ask for.
    fn steady(&self) -> usize {
        let ready = |name: &ObjectName| self.of(name).into_iter().filter(|replica| replica.is_ready()).count();
        self.deployments
            .values()
            .filter_map(|one| self.sets.desired(one))
            .filter(|d| ready(&d.name) == d.replicas)
            .count()
    }

    fn start(&mut self, replica: Replica, sender: &mpsc::Sender<(Arc<str>, Happened)>) {
        let end = CancellationToken::new();
        let pod = Arc::clone(&replica.pod);
        let log = self.lite.open_log(&replica.workload.namespace, &pod, replica.container());
        let job = Job {
            pod: Arc::clone(&pod),
            program: self.programs.of(&replica.template),
            probe: Probe::of(&replica.template),
            log,
        };
        self.replicas.insert(pod, (replica, end.clone()));
        self.processes.spawn(replica::run(job, sender.clone(), end));
    }

    fn of(&self, name: &ObjectName) -> Vec<&Replica> {
        self.replicas.values().map(|(replica, _)| replica).filter(|replica| replica.workload == *name).collect()
    }

    fn api<K>(&self, name: &ObjectName) -> Api<K>
    where
        K: kube::Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &name.namespace)
    }

    /// Ends every process; those that exceed the time are killed.
    async fn end_all(mut self, mut happened: mpsc::Receiver<(Arc<str>, Happened)>) {
        happened.close();
        for (_, end) in self.replicas.values() {
            end.cancel();
        }
        let ended = async { while self.processes.join_next().await.is_some() {} };
        // Remaining processes are killed as the set is dropped.
        drop(timeout(END, ended).await);
    }
}

/// The container of a replica, for an Event.
fn about(replica: &Replica) -> About {
    let name = ObjectName::new(&*replica.workload.namespace, &*replica.pod);
    About { kind: Kind::Container(replica.container().to_owned()), name, uid: replica.uid.to_string() }
}

/// Applies a change of an object to a map.
fn see<K: kube::Resource>(objects: &mut BTreeMap<ObjectName, K>, seen: Seen<K>) {
    let name = |object: &K| ObjectName::new(object.namespace().unwrap_or_default(), object.name_any());
    match seen {
        Seen::All(all) => *objects = all.into_iter().map(|object| (name(&object), object)).collect(),
        Seen::Put(object) => drop(objects.insert(name(&object), object)),
        Seen::Gone(object) => drop(objects.remove(&name(&object))),
    }
}

#[cfg(test)]
mod tests;
