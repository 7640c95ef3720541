//! The tree of attachments for people: class, Gateway, listener, route, rule, backend; for sources without listeners:
//! class, object, host, rule, backend. It is read in pages, so that a query never blocks the loop for long.

mod build;
mod text;

use std::sync::Arc;

use serde::Serialize;
use tidegate_config::model::BackendKey;
use tidegate_config::object::{Kind, ObjectName, ObjectRef};

pub(crate) use build::{TreeSources, build};

use crate::explain::Refused;

/// The default number of objects on a page.
const PAGE: usize = 500;
/// The maximum number of objects on a page.
const PAGE_MAX: usize = 2000;

/// A query for a page of the tree.
#[derive(Clone, Debug, Default)]
pub struct TreeQuery {
    /// Only Gateways and routes of this namespace, and the routes attached to such Gateways and their ListenerSets.
    pub namespace: Option<String>,
    /// The same by name.
    pub name: Option<String>,
    /// Only objects after this one in the order of pages.
    pub after: Option<ObjectRef>,
    /// The maximum number of Gateways and routes on the page; 500 by default, at most 2,000.
    pub limit: Option<usize>,
}

impl TreeQuery {
    fn limit(&self) -> usize {
        self.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX)
    }

    /// Whether an object has the requested namespace and name.
    fn names(&self, object: &ObjectRef) -> bool {
        let is = |asked: &Option<String>, own: &str| asked.as_ref().is_none_or(|asked| asked == own);
        is(&self.namespace, &object.name.namespace) && is(&self.name, &object.name.name)
    }

    /// Parses a value of [`Tree::next`].
    ///
    /// # Errors
    /// Returns a message if the text is not `KIND/NAMESPACE/NAME` with a known kind.
    pub fn read_after(text: &str) -> Result<ObjectRef, String> {
        let mut words = text.split('/');
        let kind = words.next().and_then(|word| Kind::ALL.into_iter().find(|kind| kind.as_str() == word));
        match (kind, words.next(), words.next(), words.next()) {
            (Some(kind), Some(namespace), Some(name), None) => {
                Ok(ObjectRef::new(kind, ObjectName::new(namespace, name)))
            }
            _ => Err(format!("{text:?} is not KIND/NAMESPACE/NAME as the previous page printed it")),
        }
    }
}

/// A page of the tree.
#[derive(Debug, Default, Serialize)]
pub struct Tree {
    /// The classes with their objects, in the order of their kinds and names.
    pub classes: Vec<ClassNode>,
    /// The `after` of the query for the next page; `None` on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A GatewayClass, an IngressClass, or the Deployment of the Deis router.
#[derive(Debug, Serialize)]
pub struct ClassNode {
    /// Its kind.
    pub kind: Kind,
    /// Its name, after its namespace if it has one.
    pub name: String,
    /// Gateways of the class, in the order of their names. Those that do not match the query are included for their
    /// attached routes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<GatewayNode>,
    /// Objects with hosts of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteNode>,
}

/// A Gateway.
#[derive(Debug, Serialize)]
pub struct GatewayNode {
    /// The Gateway.
    pub object: ObjectRef,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Its listeners and those of its ListenerSets, in the order in which they are merged.
    pub listeners: Vec<ListenerNode>,
    /// Routes that refer to it or one of its ListenerSets and are not accepted there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
}

/// A listener.
#[derive(Debug, Serialize)]
pub struct ListenerNode {
    /// Its name.
    pub name: Arc<str>,
    /// Its ListenerSet; `None` for one of the Gateway's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<ObjectRef>,
    /// Its protocol.
    pub protocol: String,
    /// The port that clients connect to.
    pub port: u16,
    /// Its hostname, or a pattern for all hosts.
    pub host: String,
    /// Its open sockets.
    pub sockets: Vec<String>,
    /// The reason why it gets no requests; `None` if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<String>,
    /// The attached routes.
    pub routes: Vec<RouteNode>,
}

/// A route, an Ingress or a Deis application.
#[derive(Debug, Serialize)]
pub struct RouteNode {
    /// The object.
    pub object: ObjectRef,
    /// Its hosts, grouped by rules.
    pub hosts: Vec<HostNode>,
}

/// Hosts with the same rules.
#[derive(Debug, Serialize)]
pub struct HostNode {
    /// The hosts; for a route, the intersection with the listener's hostname.
    pub hosts: Vec<String>,
    /// Their rules, in the order of the object.
    pub rules: Vec<RuleNode>,
}

/// One rule.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct RuleNode {
    /// Its field.
    pub field: String,
    /// Its name, if the object has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// The matches, one of which must apply. Empty for requests that match no other rule, and for connections.
    pub matches: Vec<MatchNode>,
    /// A description of the edge's own response, for rules without backends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The backends.
    pub backends: Vec<BackendNode>,
}

/// One match of a rule. Only the names of headers and query parameters are shown, because their values may be secrets.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct MatchNode {
    /// The path and its match type.
    pub path: String,
    /// The methods; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<Arc<str>>,
    /// The names of the headers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<Arc<str>>,
    /// The names of the query parameters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queries: Vec<Arc<str>>,
}

/// A weighted backend of a rule.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct BackendNode {
    /// The Service port; `None` if the reference is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendKey>,
    /// The response status for an invalid backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The weight, relative to the sum of all.
    pub weight: u32,
    /// The number of usable endpoints.
    pub endpoints: usize,
}
