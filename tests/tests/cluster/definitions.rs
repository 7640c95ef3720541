//! A custom kind that is defined and deleted, which the control loop follows like those of the Gateway API: its
//! definition is created, gets another version, and is deleted with its objects.

use std::collections::BTreeSet;
use std::time::Duration;

use http::Method;
use prometheus::Registry;
use serde_json::{Value, json};
use tidegate_config::object::Kind;
use tidegate_control::Following;
use tidegate_control::client::{Access, Deadlines, connect};
use tidegate_control::{ApiServer, Collection, CollectionMetrics, Event, Informer, Interest, Limits, Resource};
use tidegate_tests::{eventually, moment};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::stage::{Stage, measured};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const NAME: &str = "tides.test.tidegate.io";

/// The state of the kind, according to its events.
struct Followed {
    events: mpsc::Receiver<Event>,
    /// `None` while the kind is not served, and before anything is known.
    names: Option<BTreeSet<String>>,
    /// The number of times it was reported as not served.
    unserved: usize,
    _stop: DropGuard,
}

impl Followed {
    fn start(stage: &Stage) -> Self {
        let kubeconfig = stage.cluster.folder().join("admin.kubeconfig");
        let following = Following::new().expect("metrics");
        let access = Access::kubeconfig(&following, &kubeconfig, None).expect("a kubeconfig");
        let client = connect(&access, Deadlines::WATCH, &ApiServer::default()).expect("a client");
        let resource = Resource { group: "test.tidegate.io".into(), version: "v1".into(), plural: "tides".into() };
        // Its objects are read as if they were classes, which have no namespace either.
        let collection = Collection { kind: Kind::IngressClass, namespace: None };
        let interest = Interest { resource, ..Interest::in_all_of(collection) };
        let (sender, events) = mpsc::channel(64);
        let metrics = CollectionMetrics::register(&Registry::new()).expect("metrics");
        let informer = Informer::new(client, interest, Limits::default(), sender, &metrics, 7);
        let stop = CancellationToken::new();
        tokio::spawn(informer.while_served(["v2".into(), "v1".into()]).run(stop.clone()));
        Self { events, names: None, unserved: 0, _stop: stop.drop_guard() }
    }

    /// Waits until there are these objects, or until the kind has been reported as not served this many times.
    async fn until(&mut self, want: Option<&[&str]>, unserved: usize) {
        let want = want.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        while self.names != want || self.unserved < unserved {
            let event = tokio::time::timeout(Duration::from_secs(60), self.events.recv()).await;
            let event = event.unwrap_or_else(|_| panic!("{:?} instead of {want:?}", self.names));
            self.take(event.expect("it goes on"));
        }
        assert_eq!(self.unserved, unserved);
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Listed { objects, .. } => {
                self.names = Some(objects.iter().map(|object| object.meta.object.name.name.to_string()).collect());
            }
            Event::Applied { projected, .. } => {
                let name = projected.meta.object.name.name.to_string();
                self.names.get_or_insert_default().insert(name);
            }
            Event::Deleted { object, .. } => {
                self.names.get_or_insert_default().remove(&*object.name.name);
            }
            Event::Unserved { .. } => (self.names, self.unserved) = (None, self.unserved + 1),
            Event::Bookmark { .. } | Event::Resumed { .. } | Event::Watching { .. } | Event::Failing { .. } => {}
            Event::Defined { .. } | Event::Resolved { .. } | Event::ApiServer { .. } | Event::BindFailures { .. } => {}
            Event::Unlisted { .. } | Event::KeySet { .. } | Event::Unreadable { .. } => {}
        }
    }
}

fn definition() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": NAME},
        "spec": {
            "group": "test.tidegate.io", "scope": "Cluster",
            "names": {"plural": "tides", "singular": "tide", "kind": "Tide", "listKind": "TideList"},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": schema},
                {"name": "v2", "served": false, "storage": false, "schema": schema},
            ],
        },
    })
}

/// Creates an object of the kind. A definition is established a moment before its kind is served.
async fn tide(stage: &Stage, version: &str, name: &str) {
    let path = format!("/apis/test.tidegate.io/{version}/tides");
    let object =
        json!({"apiVersion": format!("test.tidegate.io/{version}"), "kind": "Tide", "metadata": {"name": name}});
    eventually("an object of the kind is taken", || async {
        let (status, answer) = stage.cluster.api.ask(Method::POST, &path, Some(("application/json", &object))).await?;
        if status.is_success() { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
}

pub(crate) async fn a_kind_comes_and_goes(stage: &mut Stage) {
    let path = format!("{DEFINITIONS}/{NAME}");
    let mut followed = Followed::start(stage);
    followed.until(None, 1).await;

    let begun = moment();
    stage.cluster.api.create(DEFINITIONS, &definition()).await;
    followed.until(Some(&[]), 1).await;
    measured("a definition is made, its objects are listed", begun);
    tide(stage, "v1", "a").await;
    followed.until(Some(&["a"]), 1).await;

    // The other version takes over, and the objects stay.
    stage.cluster.api.replace(&path, "/spec/versions/1/served", &json!(true)).await;
    tide(stage, "v2", "b").await;
    followed.until(Some(&["a", "b"]), 1).await;
    stage.cluster.api.replace(&path, "/spec/versions/0/served", &json!(false)).await;
    tide(stage, "v2", "c").await;
    followed.until(Some(&["a", "b", "c"]), 1).await;

    // An unavailable server removes nothing.
    stage.cluster.crash_api_server().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    stage.cluster.start_api_server().await;
    eventually("the kind is served again", || async {
        let object = "/apis/test.tidegate.io/v2/tides/b";
        let (status, answer) = stage.cluster.api.ask(Method::DELETE, object, None).await?;
        if status.is_success() { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
    followed.until(Some(&["a", "c"]), 1).await;

    let begun = moment();
    stage.cluster.api.delete(&path).await;
    followed.until(None, 2).await;
    measured("a definition is deleted, its objects are gone", begun);

    eventually("the definition can be made again", || async {
        let (status, answer) =
            stage.cluster.api.ask(Method::POST, DEFINITIONS, Some(("application/json", &definition()))).await?;
        if status.is_success() { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
    tide(stage, "v1", "d").await;
    followed.until(Some(&["d"]), 2).await;
    drop(followed);
    stage.cluster.api.delete(&path).await;
    stage.edge.ready().await;
}
