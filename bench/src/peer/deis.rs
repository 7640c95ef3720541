//! Applications of the Deis router as Kubernetes objects, and the router's Deployment.

use std::net::SocketAddr;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::objects::{endpoint, slice};
use super::{Route, Target};

/// The number of hosts of one application.
pub(crate) const DOMAINS: usize = 3;
/// The platform domains of short names: the first at the start.
pub(crate) const PLATFORMS: [&str; 2] = ["apps.example", "moved.example"];

/// The writes of a person, or of the platform's controller, for one application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Write {
    /// Adds a domain to the annotation of its Service.
    Domain,
    /// Creates the Service of a new application whose endpoints exist.
    Service,
    /// Adds the only endpoint of an application that had none.
    Endpoint,
}

impl Write {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Domain, Self::Service, Self::Endpoint];

    /// Its name in tables.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Domain => "a domain",
            Self::Service => "a new application",
            Self::Endpoint => "an endpoint",
        }
    }

    /// The host that becomes right by the write with this number, among this number of applications.
    #[must_use]
    pub(crate) fn host(self, number: usize, apps: usize) -> String {
        match self {
            Self::Domain => format!("new-{number:06}.example"),
            Self::Service => own_host(&new_name(number)),
            Self::Endpoint => own_host(&name(number % apps.max(1))),
        }
    }
}

/// The hosts of this number of applications, in the order of their names.
pub(crate) fn routes(apps: usize) -> Vec<Route> {
    let hosts = (0..apps).map(name).flat_map(|name| {
        let [platform, _] = PLATFORMS;
        [short_host(&name, platform), own_host(&name), format!("any.below.{name}.example")]
    });
    hosts.map(|host| Route::new(host, Target::Own)).collect()
}

/// The short name of the last of this number of applications, below a domain of the platform.
pub(crate) fn last_short_host(apps: usize, platform: &str) -> String {
    short_host(&name(apps.saturating_sub(1)), platform)
}

/// The initial objects: the router's Deployment, and this number of applications with [`DOMAINS`] hosts each.
pub(super) fn manifests(apps: usize, upstream: SocketAddr) -> Vec<Value> {
    let router = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "deis"}}),
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"namespace": "deis", "name": "deis-router", "annotations": platform(PLATFORMS[0])},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"app": "deis-router"}},
                "template": {
                    "metadata": {"labels": {"app": "deis-router"}},
                    "spec": {"containers": [{"name": "deis-router", "image": "registry.example/deis/router:1"}]},
                },
            },
        }),
    ];
    let apps = (0..apps).map(name).flat_map(|name| [service(&name, &domains(&name)), slice(&name, &[upstream])]);
    router.into_iter().chain(apps).collect()
}

/// The objects of applications on an API server.
#[derive(Debug)]
pub(crate) struct Apps {
    services: Api<Service>,
    slices: Api<EndpointSlice>,
    deployments: Api<Deployment>,
    upstream: SocketAddr,
}

impl Apps {
    pub(super) fn new(client: kube::Client, upstream: SocketAddr) -> Self {
        let (services, slices) = (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
        Self { services, slices, deployments: Api::namespaced(client, "deis"), upstream }
    }

    /// Prepares the state that a write starts from. It need not be in effect when this returns.
    pub(crate) async fn prepare(&self, write: Write, number: usize, apps: usize) -> anyhow::Result<()> {
        match write {
            Write::Domain => Ok(()),
            Write::Service => {
                let slice = slice(&new_name(number), &[self.upstream]);
                self.slices.create(&PostParams::default(), &serde_json::from_value(slice)?).await?;
                Ok(())
            }
            Write::Endpoint => self.lead(&name(number % apps.max(1)), &[]).await,
        }
    }

    /// Makes the write.
    pub(crate) async fn write(&self, write: Write, number: usize, apps: usize) -> anyhow::Result<()> {
        let name = name(number % apps.max(1));
        match write {
            Write::Domain => {
                self.list(&name, &format!("{},{}", domains(&name), write.host(number, apps))).await?;
            }
            Write::Service => {
                let service = service(&new_name(number), &domains(&new_name(number)));
                self.services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
            }
            Write::Endpoint => self.lead(&name, &[self.upstream]).await?,
        }
        Ok(())
    }

    /// Reverts a write.
    pub(crate) async fn undo(&self, write: Write, number: usize, apps: usize) -> anyhow::Result<()> {
        match write {
            Write::Domain => {
                let name = name(number % apps.max(1));
                self.list(&name, &domains(&name)).await
            }
            Write::Service => {
                self.services.delete(&new_name(number), &DeleteParams::default()).await?;
                self.slices.delete(&new_name(number), &DeleteParams::default()).await?;
                Ok(())
            }
            Write::Endpoint => Ok(()),
        }
    }

    /// Moves the short names of all applications below another domain.
    pub(crate) async fn move_to(&self, domain: &str) -> anyhow::Result<()> {
        let change = json!({"metadata": {"annotations": platform(domain)}});
        self.deployments.patch("deis-router", &PatchParams::default(), &Patch::Merge(&change)).await?;
        Ok(())
    }

    async fn list(&self, name: &str, domains: &str) -> anyhow::Result<()> {
        let change = json!({"metadata": {"annotations": {"router.deis.io/domains": domains}}});
        self.services.patch(name, &PatchParams::default(), &Patch::Merge(&change)).await?;
        Ok(())
    }

    async fn lead(&self, name: &str, endpoints: &[SocketAddr]) -> anyhow::Result<()> {
        let change = json!({"endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>()});
        self.slices.patch(name, &PatchParams::default(), &Patch::Merge(&change)).await?;
        Ok(())
    }
}

fn name(number: usize) -> String {
    format!("app-{number:06}")
}

fn new_name(number: usize) -> String {
    format!("made-{number:06}")
}

fn short_host(name: &str, platform: &str) -> String {
    format!("{name}.{platform}")
}

fn own_host(name: &str) -> String {
    format!("www.{name}.example")
}

/// A short name, a domain, and a wildcard.
fn domains(name: &str) -> String {
    format!("{name},{},*.below.{name}.example", own_host(name))
}

fn platform(domain: &str) -> Value {
    json!({"router.deis.io/nginx.platformDomain": domain})
}

fn service(name: &str, domains: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "namespace": "default",
            "name": name,
            "labels": {"router.deis.io/routable": "true"},
            "annotations": {"router.deis.io/domains": domains},
        },
        "spec": {"ports": [{"port": 80}]},
    })
}
