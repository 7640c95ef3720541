//! Watchers and reflectors of kube-rs, as controllers in Rust use them, over the server that is named. Each line on
//! standard input is answered by one line of JSON: the objects that the stores hold, the events that were seen, and
//! what contradicted the events before. `reflectors SERVER list|stream RESOURCE…`, where a resource is
//! GROUP/VERSION/PLURAL, or VERSION/PLURAL in the core group.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::reflector::{Store, store::Writer};
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Client, Config, ResourceExt as _};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

#[derive(Default, Serialize)]
struct Answer {
    synced: bool,
    objects: BTreeMap<String, DynamicObject>,
    events: BTreeMap<&'static str, u64>,
    faults: Vec<String>,
}

/// The events of all watchers.
#[derive(Default)]
struct Seen {
    events: BTreeMap<&'static str, u64>,
    faults: Vec<String>,
    /// The watchers whose first list was complete.
    complete: usize,
}

impl Seen {
    /// Counts an event. A list begins, goes on and ends in this order, and nothing else comes in between.
    fn note(&mut self, listing: &mut Option<bool>, plural: &str, event: &watcher::Result<watcher::Event<DynamicObject>>) {
        let (name, in_a_list) = match event {
            Ok(watcher::Event::Init) => ("init", None),
            Ok(watcher::Event::InitApply(_)) => ("listed", Some(true)),
            Ok(watcher::Event::InitDone) => ("complete", Some(true)),
            Ok(watcher::Event::Apply(_)) => ("applied", Some(false)),
            Ok(watcher::Event::Delete(_)) => ("deleted", Some(false)),
            Err(_) => ("failed", None),
        };
        *self.events.entry(name).or_default() += 1;
        if in_a_list.is_some_and(|wanted| *listing != Some(wanted)) {
            self.faults.push(format!("{name} of {plural} while a list was {listing:?}"));
        }
        match event {
            Ok(watcher::Event::Init) => *listing = Some(true),
            Ok(watcher::Event::InitDone) => {
                self.complete += usize::from(listing.replace(false).is_some());
            }
            _ => {}
        }
    }
}

fn resource(text: &str) -> anyhow::Result<ApiResource> {
    let parts: Vec<&str> = text.split('/').collect();
    let (group, version, plural) = match *parts {
        [version, plural] => ("", version, plural),
        [group, version, plural] => (group, version, plural),
        _ => bail!("{text:?} is not a resource"),
    };
    // The kind is not looked at.
    Ok(ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, plural), plural))
}

/// Watches a resource for as long as the process lives.
fn follow(client: &Client, resource: ApiResource, config: watcher::Config, seen: Arc<Mutex<Seen>>) -> Store<DynamicObject> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let writer = Writer::new(resource.clone());
    let store = writer.as_reader();
    let plural = resource.plural;
    let mut listing = None;
    let events = watcher(api, config).inspect(move |event| {
        seen.lock().expect("no thread has panicked").note(&mut listing, &plural, event);
    });
    let reflected = reflector(writer, events.default_backoff());
    tokio::task::spawn_local(reflected.for_each(|_| std::future::ready(())));
    store
}

fn dump(stores: &[(String, Store<DynamicObject>)], seen: &Seen) -> Answer {
    let mut answer = Answer { events: seen.events.clone(), faults: seen.faults.clone(), ..Answer::default() };
    answer.synced = seen.complete >= stores.len();
    for (plural, store) in stores {
        for object in store.state() {
            let key = format!("{plural} {}/{}", object.namespace().unwrap_or_default(), object.name_any());
            answer.objects.insert(key, (*object).clone());
        }
    }
    answer
}

async fn run() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let server = arguments.next().context("which server?")?;
    let config = match arguments.next().as_deref() {
        Some("list") => watcher::Config::default(),
        Some("stream") => watcher::Config::default().streaming_lists(),
        other => bail!("list or stream, not {other:?}"),
    };
    let client = Client::try_from(Config::new(server.parse()?))?;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut stores = Vec::new();
    for text in arguments {
        let resource = resource(&text)?;
        let plural = resource.plural.clone();
        stores.push((plural, follow(&client, resource, config.clone(), Arc::clone(&seen))));
    }
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut out = tokio::io::stdout();
    while lines.next_line().await?.is_some() {
        let mut line = serde_json::to_vec(&dump(&stores, &seen.lock().expect("no thread has panicked")))?;
        line.push(b'\n');
        out.write_all(&line).await?;
        out.flush().await?;
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    tokio::task::LocalSet::new().run_until(run()).await
}
