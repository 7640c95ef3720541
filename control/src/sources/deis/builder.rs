//! The builder of a Deis platform: TCP connections of git clients are passed on to it.

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::{
    BindKey, BindProtocol, HostPattern, Listener, Origin, StreamRoute, StreamTarget, TableName, VirtualHost,
    WeightedBackend,
};
use tidegate_config::object::{Age, ObjectRef};
use tidegate_config::project::{BackendRef, PortRef, Service};

use crate::attachment::Attachment;
use crate::sources::reader::Reader;

/// The port of the builder's Service.
const BUILDER_PORT: u16 = 2222;

/// The table and the name of the builder's listener; those of Gateways have a namespace before a slash.
const TABLE: &str = "deis-builder";

/// Adds the builder's listener and the route for its connections.
pub(in crate::sources) fn attach_builder(
    reader: &mut Reader<'_>,
    object: &ObjectRef,
    service: &Service,
    address: SocketAddr,
    attachment: &mut Attachment,
) {
    let annotations = service.deis_builder.as_deref().cloned().unwrap_or_default();
    let backend = BackendRef { service: object.name.clone(), port: PortRef::Number(BUILDER_PORT) };
    let mut findings = annotations.findings.to_vec();
    match reader.target(&backend) {
        Ok(target) => {
            let age = Age { created_s: 0, name: object.name.clone() };
            let origin = Origin { object: object.clone(), age, field: "spec.ports".into(), position: 0 };
            let to = StreamTarget { proxy_header: service.proxy_header, ..StreamTarget::from(target.backend) };
            let route = StreamRoute {
                origin: Arc::new(origin),
                rule: None,
                backends: [WeightedBackend { to: Some(to), weight: 1 }].into(),
                connect_timeout: annotations.connect_timeout,
                idle_timeout: annotations.tcp_timeout,
            };
            let table = TableName::Named(TABLE.into());
            let listener = Listener { table: table.clone(), ..Listener::for_every_host(TABLE) };
            let host = VirtualHost::new(table, HostPattern::Any);
            let bind = BindKey { address, protocol: BindProtocol::Tcp };
            attachment.other_claims_mut().binds = [(bind, [listener].into())].into();
            attachment.other_claims_mut().streams = [(host, Arc::new(route))].into();
        }
        Err(_) => {
            let why = format!("does not have the builder's port {BUILDER_PORT}");
            findings.push(Finding::new(object.clone(), "spec.ports", Problem::NoHost { why }));
        }
    }
    attachment.add_findings(findings);
}
