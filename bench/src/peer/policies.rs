//! Policies of Kuadrant as Kubernetes objects.

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::objects::GATEWAY;
use crate::limits::Limits;

/// What a policy attaches to, of the one Gateway with all HTTPRoutes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PolicyTarget {
    /// The Gateway.
    Gateway,
    /// One listener of it, by its name.
    Listener(String),
    /// The route of a host.
    Route(String),
    /// The only rule of the route of a host.
    Rule(String),
}

impl PolicyTarget {
    /// The name of its policy: no two targets have the same.
    #[must_use]
    pub(crate) fn policy(&self) -> String {
        match self {
            Self::Gateway => "gateway".to_owned(),
            Self::Listener(name) => format!("listener-{name}"),
            Self::Route(host) => format!("route-{host}"),
            Self::Rule(host) => format!("rule-{host}"),
        }
    }

    fn reference(&self) -> Value {
        let of = |kind: &str, name: &str| json!({"group": GATEWAY, "kind": kind, "name": name});
        let (mut reference, section) = match self {
            Self::Gateway => (of("Gateway", "edge"), None),
            Self::Listener(name) => (of("Gateway", "edge"), Some(name.as_str())),
            Self::Route(host) => (of("HTTPRoute", host), None),
            Self::Rule(host) => (of("HTTPRoute", host), Some("rule-1")),
        };
        if let Some(section) = section {
            reference["sectionName"] = json!(section);
        }
        reference
    }

    /// A policy for it with one limit, which all below it have too. No two targets have limits of the same name.
    fn object(&self, max: u32) -> Value {
        let limits = json!({self.policy(): {"rates": [{"limit": max, "window": "1h"}]}});
        let overrides = json!({"strategy": "merge", "limits": limits});
        policy(&self.policy(), json!({"targetRef": self.reference(), "overrides": overrides}))
    }
}

/// The policy of a Gateway with these limits.
pub(crate) fn of_gateway(limits: Limits) -> Value {
    let mut policy = policy("limits", limits.spec(&PolicyTarget::Gateway.reference()));
    policy["metadata"]["namespace"] = json!("default");
    policy
}

fn policy(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "kuadrant.io/v1", "kind": "RateLimitPolicy", "metadata": {"name": name}, "spec": spec})
}

/// The policies of an API server.
#[derive(Clone, Debug)]
pub(crate) struct Policies(Api<DynamicObject>);

impl Policies {
    pub(super) fn new(client: kube::Client) -> Self {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kuadrant.io", "v1", "RateLimitPolicy"));
        Self(Api::default_namespaced_with(client, &resource))
    }

    /// Their collection.
    pub(crate) const fn api(&self) -> &Api<DynamicObject> {
        &self.0
    }

    /// Creates the policy of a target.
    ///
    /// # Errors
    /// When it is refused.
    pub(crate) async fn create(&self, target: &PolicyTarget, max: u32) -> anyhow::Result<()> {
        self.0.create(&PostParams::default(), &serde_json::from_value(target.object(max))?).await?;
        Ok(())
    }

    /// Changes the maximum of its limit.
    ///
    /// # Errors
    /// When it is refused.
    pub(crate) async fn change(&self, target: &PolicyTarget, max: u32) -> anyhow::Result<()> {
        let change = Patch::Merge(target.object(max));
        self.0.patch(&target.policy(), &PatchParams::default(), &change).await?;
        Ok(())
    }
}
