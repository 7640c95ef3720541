//! The listeners that a Gateway offers to routes.

use std::sync::Arc;

use tidegate_config::model::{Certificate, HostPattern, TableName, Transport};
use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::gateway::AllowedNamespaces;

use super::{ConditionReason, Key, ListenerRef};

/// The listeners of a Gateway, and those of the ListenerSets that refer to it. Routes and ListenerSets read these
/// instead of the Gateway, so that they are attached again only when it changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GatewayListeners {
    /// The listeners in the order in which they are merged: the Gateway's own, then those of the sets, oldest first.
    pub listeners: Box<[MergedListener]>,
    /// The ListenerSets that are refused as a whole, with the reasons.
    pub refused: Box<[(ObjectRef, ConditionReason)]>,
    /// Whether the Gateway itself is not accepted, independently of its listeners.
    pub not_accepted: bool,
    /// The client certificate for endpoints.
    pub client: Option<Arc<Certificate>>,
}

/// One listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MergedListener {
    /// Its Gateway or ListenerSet, and its name there.
    pub listener: Arc<ListenerRef>,
    /// The port; 0 for a listener that cannot be read.
    pub port: u16,
    /// The transport of the port.
    pub transport: Transport,
    /// Its hostname.
    pub host: HostPattern,
    /// The allowed kinds of routes.
    pub kinds: Box<[Kind]>,
    /// The allowed namespaces of routes.
    pub namespaces: AllowedNamespaces,
    /// The table of its routes.
    pub table: TableName,
    /// Whether TLS is passed through.
    pub passes_on: bool,
    /// The reason why it is not accepted.
    pub refused: Option<ConditionReason>,
    /// The reason why its socket cannot be opened. It is claimed nevertheless, so that it is tried again.
    pub unopened: Option<ConditionReason>,
    /// Whether the reason is a conflict with another listener.
    pub conflicts: bool,
    /// The fault of an unusable reference.
    pub unresolved: Option<ConditionReason>,
    /// The reason why it is accepted but does not serve.
    pub idle: Option<ConditionReason>,
    /// The fault of an overlap with another listener over HTTP/2.
    pub overlap: Option<ConditionReason>,
}

impl MergedListener {
    /// The key of the routes that are attached to it.
    pub(crate) fn key(&self) -> Key {
        Key::Listener(Arc::clone(&self.listener))
    }

    /// The reason why it is not accepted, as its status reports it.
    pub(crate) fn reported(&self) -> Option<&ConditionReason> {
        self.refused.as_ref().or(self.unopened.as_ref())
    }

    /// The reason why it does not serve, if it does not.
    pub(crate) fn not_programmed(&self) -> Option<&ConditionReason> {
        self.reported().or(self.idle.as_ref())
    }

    /// Whether it is valid by itself, independently of its Gateway.
    #[must_use]
    pub fn sound(&self) -> bool {
        self.refused.is_none() && self.idle.as_ref().is_none_or(|fault| fault.reason != "Invalid")
    }

    /// Whether it can receive requests.
    #[must_use]
    pub const fn serves(&self) -> bool {
        self.refused.is_none() && self.idle.is_none()
    }
}

impl GatewayListeners {
    /// The listeners of the Gateway, or of one of its sets.
    pub fn of<'o>(&'o self, owner: &'o ObjectRef) -> impl Iterator<Item = &'o MergedListener> {
        self.listeners.iter().filter(move |listener| listener.listener.owner == *owner)
    }
}
