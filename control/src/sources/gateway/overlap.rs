//! Overlapping listeners of one port: an HTTP/2 client reuses a connection for requests to another host if the
//! certificate is also valid for that host (RFC 9113 section 9.1.1).

use std::sync::Arc;

use tidegate_config::model::{ListenerTls, TlsMode};

use crate::attachment::{ConditionReason, MergedListener};

/// Records for each listener that terminates TLS whether its certificates, or else its hostname, overlap with those of
/// another one on the port.
pub(super) fn note(offered: &mut [MergedListener], tls: &[Option<Arc<ListenerTls>>]) {
    let found: Vec<Option<ConditionReason>> = (0..offered.len()).map(|index| overlap(offered, tls, index)).collect();
    for (listener, fault) in offered.iter_mut().zip(found) {
        listener.overlap = fault;
    }
}

fn overlap(offered: &[MergedListener], tls: &[Option<Arc<ListenerTls>>], index: usize) -> Option<ConditionReason> {
    let at = |index: usize| {
        let (listener, tls) = (offered.get(index)?, tls.get(index)?.as_ref()?);
        (listener.refused.is_none() && tls.mode != TlsMode::Passthrough).then_some((listener, tls))
    };
    let (own, own_tls) = at(index)?;
    let others =
        || (0..offered.len()).filter(|other| *other != index).filter_map(at).filter(|(it, _)| it.port == own.port);
    if let Some((other, _)) = others().find(|(_, tls)| certificates(own_tls, tls)) {
        let message = format!("a certificate is for a name of a certificate of {}", other.listener);
        return Some(ConditionReason::new("OverlappingCertificates", message));
    }
    let (other, _) = others().find(|(it, _)| it.host.meet(&own.host).is_some())?;
    let message = format!("{} takes hosts of this one as well", other.listener);
    Some(ConditionReason::new("OverlappingHostnames", message))
}

/// Whether a certificate of one is valid for a name of a certificate of the other.
fn certificates(one: &ListenerTls, other: &ListenerTls) -> bool {
    let pairs = one.certificates.iter().flat_map(|one| other.certificates.iter().map(move |other| (one, other)));
    pairs.into_iter().any(|(one, other)| {
        one.names.iter().any(|name| other.covers(name)) || other.names.iter().any(|name| one.covers(name))
    })
}
