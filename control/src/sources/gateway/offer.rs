//! What a Gateway offers to routes.

use std::sync::Arc;

use tidegate_config::model::{Certificate, HostPattern, TableName, Transport};
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::gateway::AllowedNamespaces;

use super::condition::Fault;
use crate::topology::Key;

/// The listeners of a Gateway, and those of the ListenerSets that name it. Routes and ListenerSets read it in place of the Gateway,
/// so that they are attached again only when it differs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Offer {
    /// In the order in which they are merged: the Gateway's own, then those of the sets from the oldest.
    pub listeners: Box<[Offered]>,
    /// Why ListenerSets are refused as a whole.
    pub refused: Box<[(ObjectRef, Fault)]>,
    /// Whether the Gateway itself is not accepted, whatever its listeners are.
    pub not_accepted: bool,
    /// The certificate that is shown to endpoints.
    pub client: Option<Arc<Certificate>>,
}

/// One listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offered {
    /// The Gateway or ListenerSet that it stands in.
    pub owner: ObjectRef,
    /// Its name there.
    pub section: Arc<str>,
    /// The port; 0 for that of a listener that cannot be read.
    pub port: u16,
    /// What it is a port of.
    pub transport: Transport,
    /// The hosts that it takes.
    pub host: HostPattern,
    /// The kinds of routes that it takes.
    pub kinds: Box<[Kind]>,
    /// The namespaces of routes that it takes.
    pub namespaces: AllowedNamespaces,
    /// Where its routes are.
    pub table: TableName,
    /// Whether TLS goes on from here unread.
    pub passes_on: bool,
    /// Why it is not accepted.
    pub refused: Option<Fault>,
    /// Whether that is another listener that it contradicts.
    pub conflicts: bool,
    /// Why something that it refers to cannot be used.
    pub unresolved: Option<Fault>,
    /// Why it is accepted and does not serve.
    pub idle: Option<Fault>,
    /// Which other listener clients may take it for.
    pub overlap: Option<Fault>,
}

impl Offered {
    /// The key under which the routes that are attached to it are found.
    pub(super) fn key(&self) -> Key {
        Key::Listener(self.owner.clone(), Arc::clone(&self.section))
    }

    /// Whether there is nothing wrong with it by itself, whatever its Gateway lacks.
    #[must_use]
    pub fn sound(&self) -> bool {
        self.refused.is_none() && self.idle.as_ref().is_none_or(|fault| fault.reason != "Invalid")
    }

    /// Whether requests can come to it.
    #[must_use]
    pub const fn serves(&self) -> bool {
        self.refused.is_none() && self.idle.is_none()
    }
}

impl Offer {
    /// The listeners of the Gateway, or of one of its sets.
    pub fn of<'o>(&'o self, owner: &'o ObjectRef) -> impl Iterator<Item = &'o Offered> {
        self.listeners.iter().filter(move |listener| listener.owner == *owner)
    }
}
