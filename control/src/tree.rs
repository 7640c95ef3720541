//! What is attached to what, for people: class, Gateway, listener, route, rule, backend; and for sources that know no listeners class,
//! object, host, rule, backend. A page of it at a time, so that a question never keeps the loop for long.

mod build;
mod text;

use std::sync::Arc;

use serde::Serialize;
use tidegate_config::model::BackendKey;
use tidegate_config::object::{Kind, ObjectName, ObjectRef};

pub(crate) use build::{Known, build};

use crate::explain::Refused;

/// Objects on a page where the question says nothing.
const PAGE: usize = 500;
/// Objects on a page at most.
const PAGE_MAX: usize = 2000;

/// Which part of the tree is asked for.
#[derive(Clone, Debug, Default)]
pub struct TreeQuery {
    /// Only Gateways and routes of this namespace, and what is attached to such Gateways and their ListenerSets.
    pub namespace: Option<String>,
    /// The same by name.
    pub name: Option<String>,
    /// Only those after this object in the order of pages.
    pub after: Option<ObjectRef>,
    /// Gateways and routes on the page, as far as the edge allows; 500 where nothing is said, 2,000 at most.
    pub limit: Option<usize>,
}

impl TreeQuery {
    fn limit(&self) -> usize {
        self.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX)
    }

    /// Whether an object has the namespace and the name that are asked for.
    fn names(&self, object: &ObjectRef) -> bool {
        let is = |asked: &Option<String>, own: &str| asked.as_ref().is_none_or(|asked| asked == own);
        is(&self.namespace, &object.name.namespace) && is(&self.name, &object.name.name)
    }

    /// Reads what [`Tree::next`] has written.
    ///
    /// # Errors
    /// When it is nothing of the kind.
    pub fn read_after(text: &str) -> Result<ObjectRef, String> {
        let mut words = text.split('/');
        let kind = words.next().and_then(|word| Kind::ALL.into_iter().find(|kind| kind.as_str() == word));
        match (kind, words.next(), words.next(), words.next()) {
            (Some(kind), Some(namespace), Some(name), None) => {
                Ok(ObjectRef::new(kind, ObjectName::new(namespace, name)))
            }
            _ => Err(format!("{text:?} is not KIND/NAMESPACE/NAME as the page before has it")),
        }
    }
}

/// A page of the tree.
#[derive(Debug, Default, Serialize)]
pub struct Tree {
    /// Classes with what stands under them, in the order of their kinds and names.
    pub classes: Vec<ClassNode>,
    /// Where the next page begins; `None` for the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A GatewayClass, an IngressClass, or the Deployment of the Deis router.
#[derive(Debug, Serialize)]
pub struct ClassNode {
    /// Its kind.
    pub kind: Kind,
    /// Its name, behind its namespace where it has one.
    pub name: String,
    /// Gateways of the class, in the order of their names. Those that are not asked for stand here for what is attached to them.
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
    /// Where clients reach it.
    pub addresses: Vec<String>,
    /// Its listeners and those of its ListenerSets, in the order in which they are merged.
    pub listeners: Vec<ListenerNode>,
    /// Routes that name it or one of its ListenerSets and are not accepted there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
}

/// A listener.
#[derive(Debug, Serialize)]
pub struct ListenerNode {
    /// Its name.
    pub name: Arc<str>,
    /// The ListenerSet that it stands in; `None` for one of the Gateway's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<ObjectRef>,
    /// What is spoken.
    pub protocol: String,
    /// The port that clients connect to.
    pub port: u16,
    /// The hosts that it takes.
    pub host: String,
    /// The sockets that it has.
    pub sockets: Vec<String>,
    /// Why requests do not come to it; `None` where they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<String>,
    /// What is attached to it.
    pub routes: Vec<RouteNode>,
}

/// A route, an Ingress or a Deis application.
#[derive(Debug, Serialize)]
pub struct RouteNode {
    /// The object.
    pub object: ObjectRef,
    /// Its hosts, those with the same rules together.
    pub hosts: Vec<HostNode>,
}

/// Hosts with the same rules.
#[derive(Debug, Serialize)]
pub struct HostNode {
    /// The hosts: of a route those that meet its listener's.
    pub hosts: Vec<String>,
    /// Their rules, in the order of the object.
    pub rules: Vec<RuleNode>,
}

/// One rule.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct RuleNode {
    /// Its field.
    pub field: String,
    /// Its name, where the object gives one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// What it matches: one of these. Empty for whatever nothing else takes, and for connections.
    pub matches: Vec<MatchNode>,
    /// What the edge answers itself in place of going to a backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Where it leads.
    pub backends: Vec<BackendNode>,
}

/// One match of a rule. Of headers and query parameters only the names are shown: their values may be secrets.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct MatchNode {
    /// The path and its kind.
    pub path: String,
    /// The methods; empty for every one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<Arc<str>>,
    /// The headers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<Arc<str>>,
    /// The query parameters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queries: Vec<Arc<str>>,
}

/// A share of a rule.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct BackendNode {
    /// The Service port; `None` where nothing can be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendKey>,
    /// The status that its share is answered with instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The share, relative to the sum of all.
    pub weight: u32,
    /// How many endpoints are usable.
    pub endpoints: usize,
}
