//! The API server that the measured process reads: one within the bench, which costs that process the same as any
//! other.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use serde_json::json;
use tidegate_lite::{Feed, Lite, ServerSocket, SharedServer, WRITE_TIMEOUT, WatchCacheKind, WatchCacheLimits};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// A served cluster, which ends with its handle.
pub(super) struct Cluster {
    feed: Feed,
    address: SocketAddr,
    objects: u64,
    version: u64,
    _serving: AbortOnDropHandle<()>,
}

impl Cluster {
    /// Serves this number of Services.
    pub(super) async fn start(objects: u64) -> anyhow::Result<Self> {
        let [version, plural, kind] = ["v1", "services", "Service"].map(str::to_owned);
        let short = Vec::new();
        let kind = WatchCacheKind {
            group: String::new(),
            version,
            plural,
            kind,
            namespaced: true,
            forwards_writes: false,
            short,
        };
        let limits =
            WatchCacheLimits { bytes_max: 4 << 30, unconfirmed_removals_share: 0.5, unconfirmed_removals_count: 10 };
        let (lite, feeds) = Lite::watch_cache(&[kind], limits);
        let feed = feeds.into_values().next().context("no feed")?;
        feed.list_begins();
        for number in 0..objects {
            feed.listed("default", &name(number), &service(number, number + 1));
        }
        feed.list_done(&objects.to_string(), true, true);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (connections_max, write_timeout) = (64, WRITE_TIMEOUT);
        let server = SharedServer { lite, tls: None, token: None, forward: None, connections_max, write_timeout };
        let serving = tokio::spawn(server.serve(ServerSocket::Tcp(listener), std::future::pending()));
        Ok(Self { feed, address, objects, version: objects, _serving: AbortOnDropHandle::new(serving) })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its current version.
    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    /// Changes this number of Services, one after the other and far from each other.
    pub(super) fn change(&mut self, changes: u64) {
        for change in 0..changes {
            self.version += 1;
            let number = change * self.objects / changes;
            self.feed.event("default", &name(number), &service(number, self.version), false);
        }
    }
}

fn name(number: u64) -> String {
    format!("app-{number:06}")
}

/// A Service of about the size that an API server sends.
fn service(number: u64, version: u64) -> Vec<u8> {
    let app = name(number);
    let managed = json!([{
        "manager": "helm", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {"f:ports": {}, "f:selector": {}, "f:type": {}}},
    }]);
    json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {
            "name": app, "namespace": "default", "resourceVersion": version.to_string(),
            "uid": format!("00000000-0000-4000-8000-{number:012}"), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": app, "app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"example.com/revision": version.to_string()}, "managedFields": managed,
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}], "selector": {"app": app},
        },
        "status": {"loadBalancer": {}},
    })
    .to_string()
    .into_bytes()
}
