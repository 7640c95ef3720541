//! The manifests under `tests/golden`, a folder for each kind.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidegate_config::object::Kind;
use tidegate_config::project::{Projected, project};

/// The folders, and the kind of the manifests in each.
pub(crate) const FOLDERS: [(&str, Kind); 21] = [
    ("auth-policy", Kind::AuthPolicy),
    ("backend-tls-policy", Kind::BackendTlsPolicy),
    ("config-map", Kind::ConfigMap),
    ("deployment", Kind::Deployment),
    ("endpoint-slice", Kind::EndpointSlice),
    ("gateway", Kind::Gateway),
    ("gateway-class", Kind::GatewayClass),
    ("grpc-route", Kind::GrpcRoute),
    ("http-route", Kind::HttpRoute),
    ("ingress", Kind::Ingress),
    ("ingress-class", Kind::IngressClass),
    ("listener-set", Kind::ListenerSet),
    ("namespace", Kind::Namespace),
    ("rate-limit-policy", Kind::RateLimitPolicy),
    ("reference-grant", Kind::ReferenceGrant),
    ("secret", Kind::Secret),
    ("service", Kind::Service),
    ("tcp-route", Kind::TcpRoute),
    ("tls-route", Kind::TlsRoute),
    ("token-rate-limit-policy", Kind::TokenRateLimitPolicy),
    ("udp-route", Kind::UdpRoute),
];

/// One manifest as the API server returns it.
pub(crate) struct Manifest {
    /// Its kind, from its folder.
    pub(crate) kind: Kind,
    /// Its file.
    pub(crate) file: PathBuf,
    /// Its JSON, with the fields that a server adds.
    pub(crate) json: Value,
}

/// The folder of the manifests.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Every manifest, in the order of kinds and names.
pub(crate) fn all() -> Vec<Manifest> {
    FOLDERS.iter().flat_map(|(folder, kind)| of_folder(folder, *kind)).collect()
}

fn of_folder(folder: &str, kind: Kind) -> Vec<Manifest> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files.into_iter().map(|file| read(file, kind)).collect()
}

fn read(file: PathBuf, kind: Kind) -> Manifest {
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.lines().count() <= 80, "{} has more than 80 lines", file.display());
    let mut json: Value = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    assert_eq!(json["kind"], kind.as_str(), "{} is in the folder of another kind", file.display());
    json["metadata"]["resourceVersion"] = json!("1");
    if kind.namespaced() && json["metadata"]["namespace"].is_null() {
        json["metadata"]["namespace"] = json!("shop");
    }
    Manifest { kind, file, json }
}

/// Projects JSON that names its object.
#[track_caller]
pub(crate) fn projected(kind: Kind, json: &Value) -> Projected {
    project(kind, json.to_string().as_bytes()).unwrap()
}
