//! What the operator decides about the control loop, and every limit of it in one place.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use tidegate_config::model::{Bind, Settings};
use tidegate_config::object::ObjectName;

/// What compiling depends on besides the objects.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of our IngressClass: what the old annotation is compared with, and what counts as ours while IngressClasses cannot be read.
    pub class: Arc<str>,
    /// `spec.controller` of the IngressClasses that are ours.
    pub controller: Arc<str>,
    /// The Secret of the certificate for server names that no other certificate is for.
    pub default_certificate: Option<ObjectName>,
    /// What happens to a host that objects of several namespaces claim.
    pub host_ownership: HostOwnership,
    /// Which addresses objects may name.
    pub addresses: AddressPolicy,
    /// The sockets to listen on.
    pub binds: Arc<[Bind]>,
    /// Settings of every route that sets no others.
    pub defaults: Arc<Settings>,
    /// Peers whose forwarded headers are believed.
    pub trusted_proxies: Arc<[IpNet]>,
    /// How the loop runs.
    pub pace: Pace,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            class: "tidegate".into(),
            controller: "tidegate.io/ingress".into(),
            default_certificate: None,
            host_ownership: HostOwnership::default(),
            addresses: AddressPolicy::default(),
            binds: Arc::default(),
            defaults: Arc::default(),
            trusted_proxies: Arc::default(),
            pace: Pace::default(),
        }
    }
}

/// Limits and deadlines of the loop.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Keys compiled in one batch.
    pub batch_max: usize,
    /// Batches of live changes after which one batch of the slow lane is taken, if any waits.
    pub fast_batches_max: u32,
    /// Age at which the oldest key of the slow lane goes next.
    pub slow_age_max: Duration,
    /// How long a working route waits for the Service or endpoints that it would move to.
    pub settle: Duration,
    /// How long the first publication waits for the kinds that routing can do without (Secret, IngressClass).
    pub optional_grace: Duration,
    /// Share of a kind (0 to 1) that a completed list may remove without a second list that confirms it.
    pub sweep_share_max: f64,
    /// Objects that a completed list may remove without confirmation, whatever their share.
    pub sweep_free: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            batch_max: 512,
            fast_batches_max: 8,
            slow_age_max: Duration::from_secs(1),
            settle: Duration::from_secs(1),
            optional_grace: Duration::from_secs(15),
            sweep_share_max: 0.5,
            sweep_free: 10,
        }
    }
}

/// What happens to a host that objects of several namespaces claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HostOwnership {
    /// Their rules are merged, as ingress-nginx does.
    #[default]
    Shared,
    /// It belongs to the namespace of the oldest object that claims it.
    Namespace,
}

/// Which addresses objects may name. Objects are written by tenants, so an address of theirs must not lead
/// into the edge's own host.
#[derive(Clone, Debug, Default)]
pub struct AddressPolicy {
    /// Loopback addresses are allowed: for local development only.
    pub allow_loopback: bool,
    /// The edge's own addresses.
    pub own: Arc<[IpAddr]>,
}

impl AddressPolicy {
    /// Why an address is refused; `None` when it is allowed.
    #[must_use]
    pub fn refusal(&self, address: IpAddr) -> Option<&'static str> {
        let address = address.to_canonical();
        if address.is_loopback() {
            return (!self.allow_loopback).then_some("loopback addresses lead into the edge's own host");
        }
        let link_local = match address {
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        if link_local {
            Some("link-local addresses lead to the edge's own node")
        } else if address.is_unspecified() || address.is_multicast() {
            Some("it is no address of one host")
        } else if self.own.contains(&address) {
            Some("it is the edge's own address")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(address: &str, allowed: bool) {
        let own: Arc<[IpAddr]> = ["10.0.0.9".parse().unwrap()].into();
        let policy = AddressPolicy { allow_loopback: false, own };
        assert_eq!(policy.refusal(address.parse().unwrap()).is_none(), allowed, "{address}");
    }

    #[test]
    fn addresses_of_the_edge_itself_are_refused() {
        for address in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "169.254.169.254", "fe80::1"] {
            check(address, false);
        }
        for address in ["0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "10.0.0.9", "::ffff:10.0.0.9"] {
            check(address, false);
        }
        for address in ["10.0.0.8", "192.0.2.1", "2001:db8::1"] {
            check(address, true);
        }
    }

    #[test]
    fn loopback_can_be_allowed_and_nothing_else_is() {
        let policy = AddressPolicy { allow_loopback: true, own: Arc::default() };
        assert_eq!(policy.refusal("127.0.0.1".parse().unwrap()), None);
        assert!(policy.refusal("169.254.169.254".parse().unwrap()).is_some());
    }
}
