//! The configuration of Envoy, in the JSON form of its API.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::super::{Protocol, Target, Work, log_file};
use crate::identity::Identity;
use crate::limits::{Limits, UNREACHED};

/// The files of its discovery, each in a folder of its own.
pub(super) const FILES: [&str; 3] = [ROUTES, CLUSTERS, ENDPOINTS];
pub(super) const ROUTES: &str = "routes";
pub(super) const CLUSTERS: &str = "clusters";
pub(super) const ENDPOINTS: &str = "endpoints";

/// Its listening addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sockets {
    pub(super) plain: SocketAddr,
    pub(super) secure: SocketAddr,
    pub(super) admin: SocketAddr,
}

/// The static part: sockets, the work and the limits of every request, and the paths of discovery.
pub(super) fn bootstrap(folder: &Path, sockets: Sockets, identity: &Identity, work: Work, limits: Limits) -> Value {
    let connections = |name| connections(folder, name, work, limits);
    let mut bootstrap = json!({
        "node": {"id": "bench", "cluster": "bench"},
        "admin": {"address": address(sockets.admin)},
        "dynamic_resources": {"cds_config": discovered(folder, CLUSTERS)},
        "static_resources": {"listeners": [
            {
                "name": "plain",
                "address": address(sockets.plain),
                "tcp_backlog_size": 4096,
                "filter_chains": [{"filters": [connections("plain")]}],
            },
            {
                "name": "secure",
                "address": address(sockets.secure),
                "tcp_backlog_size": 4096,
                "filter_chains": [{"transport_socket": tls(identity), "filters": [connections("secure")]}],
            },
        ]},
    });
    if !work.is_same() {
        bootstrap["stats_config"] = json!({"stats_matcher": {"reject_all": true}});
    }
    bootstrap
}

/// Every host with its cluster.
pub(super) fn routes(routes: &BTreeMap<String, Target>, work: Work) -> Value {
    let host = |(host, target): (&String, &Target)| {
        // Long-lived exchanges have no timeout.
        let timeout = if target.lasts() { "0s" } else { "60s" };
        json!({
            "name": host,
            "domains": [host],
            "routes": [{"match": {"prefix": "/"}, "route": {"cluster": target.service(host), "timeout": timeout}}],
        })
    };
    let mut found = json!({
        "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        "name": "routes",
        "ignore_port_in_host_matching": true,
        "virtual_hosts": routes.iter().map(host).collect::<Vec<_>>(),
    });
    if work.is_same() {
        let set = |name: &str, value: &str| json!({"header": {"key": name, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"});
        found["request_headers_to_add"] = json!([
            set("x-real-ip", "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"),
            set("x-forwarded-host", "%REQ(:AUTHORITY)%"),
            set("x-forwarded-port", "%DOWNSTREAM_LOCAL_PORT%"),
        ]);
    }
    json!({"resources": [found]})
}

/// The clusters of routes: the shared ones, and those of single hosts.
pub(super) fn clusters(
    folder: &Path,
    shared: &[(Target, SocketAddr)],
    routes: &BTreeMap<String, Target>,
    upstream: SocketAddr,
) -> Value {
    let fixed = |name: &str, at: SocketAddr| {
        let mut cluster = cluster(name);
        cluster["type"] = json!("STATIC");
        cluster["load_assignment"] = assignment(name, &[at]);
        cluster
    };
    let mut rolled = cluster(Target::Rolled.service(""));
    rolled["type"] = json!("EDS");
    rolled["eds_cluster_config"] = json!({"eds_config": discovered(folder, ENDPOINTS)});
    let shared = shared.iter().map(|(target, at)| {
        let mut cluster = fixed(target.service(""), *at);
        match target.protocol() {
            Protocol::Http1 => {}
            Protocol::Http2 => cluster["typed_extension_protocol_options"] = http2(),
            Protocol::Tls => cluster["transport_socket"] = tls_to_endpoints(),
        }
        cluster
    });
    let own = routes.iter().filter(|(_, target)| **target == Target::Own);
    let own = own.map(|(host, target)| fixed(target.service(host), upstream));
    json!({"resources": shared.chain([rolled]).chain(own).collect::<Vec<_>>()})
}

/// The endpoints of [`Target::Rolled`].
pub(super) fn endpoints(endpoints: &[SocketAddr]) -> Value {
    let mut found = assignment(Target::Rolled.service(""), endpoints);
    found["@type"] = json!("type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment");
    json!({"resources": [found]})
}

fn cluster(name: &str) -> Value {
    json!({
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": name,
        "connect_timeout": "5s",
    })
}

/// The transport of endpoints that speak TLS. As a client, Envoy speaks no TLS 1.3 by default.
fn tls_to_endpoints() -> Value {
    json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "common_tls_context": {"tls_params": {"tls_maximum_protocol_version": "TLSv1_3"}},
        },
    })
}

/// The option for endpoints that speak HTTP/2.
fn http2() -> Value {
    json!({"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }})
}

fn assignment(cluster: &str, endpoints: &[SocketAddr]) -> Value {
    let endpoints: Vec<Value> = endpoints.iter().map(|at| json!({"endpoint": {"address": address(*at)}})).collect();
    json!({"cluster_name": cluster, "endpoints": [{"lb_endpoints": endpoints}]})
}

fn address(at: SocketAddr) -> Value {
    json!({"socket_address": {"address": at.ip(), "port_value": at.port()}})
}

/// The path of one of [`FILES`].
pub(super) fn file(folder: &Path, name: &str) -> PathBuf {
    folder.join(name).join("resources.json")
}

fn discovered(folder: &Path, name: &str) -> Value {
    let source = json!({"path": file(folder, name), "watched_directory": {"path": folder.join(name)}});
    json!({"resource_api_version": "V3", "path_config_source": source})
}

fn tls(identity: &Identity) -> Value {
    let inline = |text: &str| json!({"inline_string": text});
    json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
            "common_tls_context": {
                "alpn_protocols": ["h2", "http/1.1"],
                "tls_certificates": [
                    {"certificate_chain": inline(&identity.certificate), "private_key": inline(&identity.key)},
                ],
            },
        },
    })
}

/// The filters for the connections of a listener.
fn connections(folder: &Path, name: &str, work: Work, limits: Limits) -> Value {
    let mut router = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
        "suppress_envoy_headers": true,
    });
    let mut manager = json!({
        "@type":
            "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "rds": {"route_config_name": "routes", "config_source": discovered(folder, ROUTES)},
        "upgrade_configs": [{"upgrade_type": "websocket"}],
        // The same windows as Tidegate.
        "http2_protocol_options": {"initial_stream_window_size": 262_144, "initial_connection_window_size": 1_048_576},
    });
    if work.is_same() {
        manager["use_remote_address"] = json!(true);
        manager["access_log"] = json!([log(folder)]);
    } else {
        manager["generate_request_id"] = json!(false);
        router["dynamic_stats"] = json!(false);
    }
    let router = json!({"name": "envoy.filters.http.router", "typed_config": router});
    manager["http_filters"] = (0..limits.count()).map(limit).chain([router]).collect();
    json!({"name": "envoy.filters.network.http_connection_manager", "typed_config": manager})
}

/// A limit for all requests together: a filter has one bucket.
fn limit(number: u16) -> Value {
    let always = json!({"default_value": {"numerator": 100, "denominator": "HUNDRED"}});
    json!({
        "name": format!("limit-{number}"),
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
            "stat_prefix": format!("limit_{number}"),
            "token_bucket": {"max_tokens": UNREACHED, "tokens_per_fill": UNREACHED, "fill_interval": "3600s"},
            "filter_enabled": always,
            "filter_enforced": always,
        },
    })
}

/// One line of JSON per request, with the fields of Tidegate's. Envoy buffers lines by default.
fn log(folder: &Path) -> Value {
    json!({
        "name": "envoy.access_loggers.file",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
            "path": log_file(folder),
            "log_format": {"json_format": {
                "time": "%START_TIME%",
                "request_id": "%REQ(X-REQUEST-ID)%",
                "client": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
                "method": "%REQ(:METHOD)%",
                "scheme": "%REQ(:SCHEME)%",
                "host": "%REQ(:AUTHORITY)%",
                "path": "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
                "protocol": "%PROTOCOL%",
                "status": "%RESPONSE_CODE%",
                "reason": "%RESPONSE_FLAGS%",
                "bytes_in": "%BYTES_RECEIVED%",
                "bytes_out": "%BYTES_SENT%",
                "duration_ms": "%DURATION%",
                "upstream": "%UPSTREAM_HOST%",
                "upstream_first_byte_ms": "%RESPONSE_DURATION%",
                "tries": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
                "object": "%UPSTREAM_CLUSTER%",
                "tls": "%DOWNSTREAM_TLS_VERSION%",
                "user_agent": "%REQ(USER-AGENT)%",
                "referer": "%REQ(REFERER)%",
            }},
        },
    })
}
