//! The objects of a cluster of the Deis platform, from which both sides are made: Tidegate reads them as they are, and
//! `router.rs` writes the configuration of nginx from them.

use std::net::SocketAddr;

use base64::Engine as _;
use rustls_pki_types::CertificateDer;
use serde_json::{Map, Value, json};

use crate::endpoint::Endpoint;

/// The prefix of annotations.
pub(crate) const PREFIX: &str = "router.deis.io/";

/// The networks of `proxyRealIpCidrs` in every world: the test's load balancer is in it, other clients are not.
pub(crate) const TRUSTED_NETWORK: &str = "127.0.0.2/31";

/// The objects, and the endpoints and certificates that belong to them.
#[derive(Debug, Default)]
pub(crate) struct World {
    /// The objects in the order of their creation.
    pub(crate) objects: Vec<Value>,
    /// The endpoints, which live as long as the world.
    pub(crate) endpoints: Vec<Endpoint>,
    /// The certificates, each with its Secret as `NAMESPACE/NAME`.
    pub(crate) certificates: Vec<(String, CertificateDer<'static>)>,
}

impl World {
    /// A world with this router and the platform's namespace.
    pub(crate) fn new(router: &[(&str, &str)]) -> Self {
        let mut annotations = annotations("nginx.", router);
        annotations.insert(format!("{PREFIX}nginx.proxyRealIpCidrs"), TRUSTED_NETWORK.into());
        let template = json!({
            "metadata": {"labels": {"app": "deis-router"}},
            "spec": {"containers": [{"name": "router", "image": "registry.example/deis/router:1"}]},
        });
        let deployment = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"namespace": "deis", "name": "deis-router", "annotations": annotations},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "deis-router"}}, "template": template},
        });
        let mut world = Self::default();
        world.namespace("deis");
        world.objects.push(deployment);
        world
    }

    /// Adds an application with an endpoint of its own, which has the name of the application.
    pub(crate) async fn app(&mut self, name: &str, said: &[(&str, &str)]) {
        self.app_in(name, name, said).await;
    }

    /// Like [`World::app`], in a namespace of another name: the platform creates such objects for the further processes
    /// of an application.
    pub(crate) async fn app_in(&mut self, namespace: &str, name: &str, said: &[(&str, &str)]) {
        let endpoint = Endpoint::start(name).await;
        self.app_at(namespace, name, said, &[endpoint.address()]);
        self.endpoints.push(endpoint);
    }

    /// Adds an application with endpoints of others, or none.
    pub(crate) fn app_at(&mut self, namespace: &str, name: &str, said: &[(&str, &str)], endpoints: &[SocketAddr]) {
        self.namespace(namespace);
        self.objects.push(service(namespace, name, "true", said));
        self.objects.push(slice(namespace, name, endpoints));
    }

    /// Adds a Service that is not routable.
    pub(crate) async fn unroutable(&mut self, name: &str, said: &[(&str, &str)]) {
        let endpoint = Endpoint::start(name).await;
        self.namespace(name);
        self.objects.push(service(name, name, "false", said));
        self.objects.push(slice(name, name, &[endpoint.address()]));
        self.endpoints.push(endpoint);
    }

    /// A Secret with a self-signed certificate for these names. The platform gives its Secrets no special type.
    pub(crate) fn certificate(&mut self, namespace: &str, name: &str, names: &[&str]) {
        self.namespace(namespace);
        let made = rcgen::generate_simple_self_signed(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let made = made.expect("a certificate");
        let base64 = |text: String| base64::engine::general_purpose::STANDARD.encode(text);
        let data = json!({"tls.crt": base64(made.cert.pem()), "tls.key": base64(made.signing_key.serialize_pem())});
        let metadata = json!({"namespace": namespace, "name": name});
        self.objects.push(json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}));
        self.certificates.push((format!("{namespace}/{name}"), made.cert.der().clone()));
    }

    /// The name of a certificate in responses: its Secret, or `default` for one that no Secret holds.
    pub(crate) fn name_of(&self, certificate: &CertificateDer<'_>) -> String {
        let known = self.certificates.iter().find(|(_, der)| der == certificate);
        known.map_or_else(|| "default".to_owned(), |(name, _)| name.clone())
    }

    /// The objects as one manifest.
    pub(crate) fn manifest(&self) -> String {
        let documents: Vec<String> = self.objects.iter().map(Value::to_string).collect();
        documents.join("\n---\n")
    }

    /// `NAMESPACE/NAME` of each application that is routed.
    pub(crate) fn routed(&self) -> Vec<String> {
        let services = self.objects.iter().filter(|object| object["kind"] == "Service");
        let routable = services.filter(|object| object["metadata"]["labels"][format!("{PREFIX}routable")] == "true");
        let with_domains =
            routable.filter(|object| object["metadata"]["annotations"][format!("{PREFIX}domains")].is_string());
        with_domains.map(named).collect()
    }

    fn namespace(&mut self, name: &str) {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        if !self.objects.contains(&object) {
            self.objects.push(object);
        }
    }
}

/// `NAMESPACE/NAME` of an object.
pub(crate) fn named(object: &Value) -> String {
    let text = |key: &str| object["metadata"][key].as_str().expect("a name").to_owned();
    format!("{}/{}", text("namespace"), text("name"))
}

fn annotations(context: &str, said: &[(&str, &str)]) -> Map<String, Value> {
    said.iter().map(|(key, value)| (format!("{PREFIX}{context}{key}"), (*value).into())).collect()
}

fn service(namespace: &str, name: &str, routable: &str, said: &[(&str, &str)]) -> Value {
    let labels = json!({"app": name, "heritage": "deis", format!("{PREFIX}routable"): routable});
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": namespace, "name": name, "labels": labels, "annotations": annotations("", said)},
        "spec": {"ports": [{"port": 80, "targetPort": 5000}]},
    })
}

/// All addresses of one slice have one port.
fn slice(namespace: &str, name: &str, endpoints: &[SocketAddr]) -> Value {
    let ports: Vec<Value> = endpoints.first().map(|address| json!({"port": address.port()})).into_iter().collect();
    let endpoints: Vec<Value> =
        endpoints.iter().map(|address| json!({"addresses": [address.ip().to_string()]})).collect();
    let labels = json!({"kubernetes.io/service-name": name});
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "addressType": "IPv4",
        "ports": ports,
        "endpoints": endpoints,
    })
}
