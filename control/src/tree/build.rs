//! Builds the tree from the current objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_config::model::{
    Action, Destination, Route, SnapshotParts, StreamRoute, TableName, VirtualHost, WeightedBackend, WeightedTarget,
};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::gateway::{Gateway, Listener};

use super::{
    BackendNode, ClassNode, GatewayNode, HostNode, ListenerNode, MatchNode, RouteNode, RuleNode, Tree, TreeQuery,
};
use crate::attachment::{Attachment, ListenerRef, MergedListener, Verdict};
use crate::explain::refusals;
use crate::sources::{class_kind, parent_of};
use crate::topology::Topology;
use crate::world::World;

/// The input of a page.
#[derive(Clone, Copy)]
pub(crate) struct TreeSources<'k> {
    pub(crate) world: &'k World,
    pub(crate) topology: &'k Topology,
    pub(crate) parts: &'k SnapshotParts,
}

/// The nodes of a page before they are grouped by class.
#[derive(Default)]
struct PageNodes {
    gateways: BTreeMap<ObjectName, GatewayNode>,
    /// Objects with hosts of their own, by class.
    routes: BTreeMap<(Kind, String), Vec<RouteNode>>,
}

/// Builds a page of the tree.
pub(crate) fn build(known: TreeSources<'_>, query: &TreeQuery) -> Tree {
    let (mut page, mut count, mut last, mut next) = (PageNodes::default(), 0, None, None);
    for (object, attachment) in known.topology.attachments_after(query.after.as_ref()) {
        if !is_shown(object, attachment)
            || !(query.names(object)
                || known.parents(object, attachment).into_iter().any(|parent| query.names(&parent)))
        {
            continue;
        }
        if count == query.limit() {
            next = last;
            break;
        }
        count += 1;
        last = Some(object);
        if object.kind == Kind::Gateway {
            known.gateway(&mut page, &object.name);
        } else if object.kind.is_route() {
            known.route(&mut page, object, attachment);
        } else if let Some(class) = TreeSources::class_of(object, attachment) {
            page.routes.entry(class).or_default().push(known.node(object, attachment, &TableName::Shared));
        }
    }
    let written =
        |object: &ObjectRef| format!("{}/{}/{}", object.kind.as_str(), object.name.namespace, object.name.name);
    Tree { classes: known.classes(page), next: next.map(written) }
}

/// Whether an object has a node of its own in the tree.
fn is_shown(object: &ObjectRef, attachment: &Attachment) -> bool {
    object.kind.is_route() || object.kind == Kind::Gateway || !attachment.claims.is_empty()
}

impl<'k> TreeSources<'k> {
    /// The Gateways and ListenerSets that a route refers to.
    fn parents(self, object: &ObjectRef, attachment: &Attachment) -> Vec<ObjectRef> {
        let links = attachment.links.iter().filter(|_| object.kind.is_route());
        links.filter_map(|key| key.gateway_listeners().or_else(|| key.object(Kind::ListenerSet).cloned())).collect()
    }

    /// The class of an object with hosts of its own.
    fn class_of(object: &ObjectRef, attachment: &Attachment) -> Option<(Kind, String)> {
        match attachment.report.as_ref().and_then(|report| report.verdict.as_ref()) {
            Some(Verdict::Served(class)) => Some((class_kind(object.kind)?, class.to_string())),
            Some(Verdict::Others | Verdict::Status(_) | Verdict::Route(_) | Verdict::Orphaned(_)) => None,
            // The Deployment of a Deis router, which is the class of its applications.
            None => Some((object.kind, object.name.to_string())),
        }
    }

    /// Returns the node of a Gateway on the page, and adds it if it is missing; with the refused routes if the query
    /// selects the Gateway itself.
    fn gateway<'p>(self, page: &'p mut PageNodes, name: &ObjectName) -> Option<&'p mut GatewayNode> {
        if !page.gateways.contains_key(name) {
            let object = ObjectRef::new(Kind::Gateway, name.clone());
            let merged = self.topology.gateway_listeners(&object)?;
            let attachment = self.topology.get(&object)?;
            let listeners = merged.listeners.iter().map(|offered| self.listener(attachment, offered)).collect();
            let status = attachment.report.as_ref().and_then(|report| report.verdict.as_ref());
            let addresses = match status {
                Some(Verdict::Status(status)) => status.addresses.iter().map(|it| it.value.to_string()).collect(),
                Some(Verdict::Served(_) | Verdict::Others | Verdict::Route(_) | Verdict::Orphaned(_)) | None => {
                    Vec::new()
                }
            };
            let node = GatewayNode { object, addresses, listeners, refused: Vec::new() };
            page.gateways.insert(name.clone(), node);
        }
        page.gateways.get_mut(name)
    }

    fn listener(self, gateway: &Attachment, offered: &MergedListener) -> ListenerNode {
        let TableName::Named(table) = &offered.table else { return ListenerNode::unnamed(offered) };
        let of_it = |listeners: &[tidegate_config::model::Listener]| listeners.iter().any(|it| it.name.0 == *table);
        let sockets = gateway.other_claims().binds.iter().filter(|(_, listeners)| of_it(listeners));
        let fault = offered.refused.as_ref().or(offered.idle.as_ref());
        ListenerNode {
            protocol: self.written(offered).map_or_else(String::new, |spec| spec.protocol.to_string()),
            sockets: sockets.map(|(key, _)| key.address.to_string()).collect(),
            idle: fault.map(|fault| format!("{}: {}", fault.reason, fault.message)),
            ..ListenerNode::unnamed(offered)
        }
    }

    /// The listener in the spec of its object.
    fn written(self, offered: &MergedListener) -> Option<&'k tidegate_config::project::gateway::ListenerSpec> {
        let ListenerRef { owner, section } = &*offered.listener;
        let name = &owner.name;
        let gateway = |gateway: &'k Arc<Gateway>| &*gateway.listeners;
        let listeners: &[Listener] = if owner.kind == Kind::ListenerSet {
            self.world.listener_sets.get(name).map(|set| &*set.listeners)?
        } else {
            self.world.gateways.get(name).map(gateway)?
        };
        listeners.iter().find(|listener| listener.name == *section)?.spec.as_ref().ok()
    }

    /// Adds a route to each of its listeners, and to the Gateways that refuse it.
    fn route(self, page: &mut PageNodes, object: &ObjectRef, attachment: &'k Attachment) {
        for key in &*attachment.listeners {
            let Some(listener) = key.listener() else { continue };
            let ListenerRef { owner, section } = &**listener;
            let Some(gateway) = self.gateway_of(owner) else { continue };
            let table = self.topology.gateway_listeners(&gateway).and_then(|merged| {
                let mut own = merged.of(owner).filter(|offered| offered.listener == *listener);
                own.next().map(|offered| offered.table.clone())
            });
            let Some(table) = table else { continue };
            let route = self.node(object, attachment, &table);
            let set = (*owner != gateway).then_some(owner);
            let listeners = self.gateway(page, &gateway.name).map(|node| &mut node.listeners);
            let place =
                listeners.and_then(|all| all.iter_mut().find(|it| it.name == *section && it.set.as_ref() == set));
            if let Some(listener) = place {
                listener.routes.push(route);
            }
        }
        let parents = self.parents(object, attachment).into_iter();
        for gateway in parents.filter(|parent| parent.kind == Kind::Gateway) {
            let refused = refusals(self.world, self.topology, &gateway, object);
            if let Some(node) = self.gateway(page, &gateway.name) {
                node.refused.extend(refused);
            }
        }
    }

    fn gateway_of(self, owner: &ObjectRef) -> Option<ObjectRef> {
        match owner.kind == Kind::ListenerSet {
            true => parent_of(self.world.listener_sets.get(&owner.name)?),
            false => Some(owner.clone()),
        }
    }

    /// A route with its hosts in one table.
    fn node(self, object: &ObjectRef, attachment: &Attachment, table: &TableName) -> RouteNode {
        let mut hosts: Vec<HostNode> = Vec::new();
        let mut put =
            |host: &VirtualHost, rules: Vec<RuleNode>| match hosts.last_mut().filter(|last| last.rules == rules) {
                Some(last) => last.hosts.push(host.pattern.to_string()),
                None => hosts.push(HostNode { hosts: vec![host.pattern.to_string()], rules }),
            };
        for claim in attachment.claims.iter().filter(|claim| claim.host.table == *table) {
            put(&claim.host, self.rules(claim.all_routes()));
        }
        for (host, stream) in attachment.other_claims().streams.iter().filter(|(host, _)| host.table == *table) {
            put(host, vec![self.stream(stream)]);
        }
        RouteNode { object: object.clone(), hosts }
    }

    /// The rules of routes: consecutive routes from matches of the same rule are joined.
    fn rules<'r>(self, routes: impl Iterator<Item = &'r Arc<Route>>) -> Vec<RuleNode> {
        let mut rules: Vec<RuleNode> = Vec::new();
        for route in routes {
            let field = route.origin.field.split(".matches[").next().unwrap_or_default();
            if let Some(last) = rules.last_mut().filter(|last| last.field == field) {
                last.matches.push(matched(route));
                continue;
            }
            let answer = match &route.action {
                Action::Forward(_) => None,
                Action::Redirect(redirect) => Some(format!("redirect {}", redirect.status)),
                Action::Respond(response) => Some(format!("status {}", response.status)),
            };
            rules.push(RuleNode {
                field: field.to_owned(),
                name: route.rule.clone(),
                matches: vec![matched(route)],
                answer,
                backends: route.action.shares().iter().map(|share| self.share(share)).collect(),
            });
        }
        rules
    }

    fn share(self, share: &WeightedTarget) -> BackendNode {
        let (backend, status, endpoints) = match &share.to {
            Destination::Target(target) => {
                let backend = target.fixed.as_ref().or_else(|| self.parts.backends.get(&target.backend));
                (Some(target.backend.clone()), None, backend.map_or(0, |backend| backend.endpoints.len()))
            }
            Destination::Status(status) => (None, Some(*status), 0),
        };
        BackendNode { backend, status, weight: share.weight, endpoints }
    }

    fn stream(self, route: &StreamRoute) -> RuleNode {
        let share = |share: &WeightedBackend| {
            let backend = share.to.as_ref().map(|target| &target.backend);
            let endpoints = backend.and_then(|backend| self.parts.backends.get(backend));
            BackendNode {
                backend: backend.cloned(),
                status: None,
                weight: share.weight,
                endpoints: endpoints.map_or(0, |backend| backend.endpoints.len()),
            }
        };
        RuleNode {
            field: route.origin.field.to_string(),
            name: route.rule.clone(),
            matches: Vec::new(),
            answer: None,
            backends: route.backends.iter().map(share).collect(),
        }
    }

    /// Groups the nodes of a page by class.
    fn classes(self, page: PageNodes) -> Vec<ClassNode> {
        let mut classes: BTreeMap<(Kind, String), ClassNode> = BTreeMap::new();
        let class = |(kind, name): &(Kind, String)| {
            let (gateways, routes) = (Vec::new(), Vec::new());
            ClassNode { kind: *kind, name: name.clone(), gateways, routes }
        };
        for (name, node) in page.gateways {
            let Some(gateway) = self.world.gateways.get(&name) else { continue };
            let key = (Kind::GatewayClass, gateway.class.name.to_string());
            classes.entry(key.clone()).or_insert_with(|| class(&key)).gateways.push(node);
        }
        for (key, mut routes) in page.routes {
            classes.entry(key.clone()).or_insert_with(|| class(&key)).routes.append(&mut routes);
        }
        classes.into_values().collect()
    }
}

fn matched(route: &Route) -> MatchNode {
    let names = |values: &[tidegate_config::model::ValueMatch]| values.iter().map(|it| Arc::clone(&it.name)).collect();
    MatchNode {
        path: route.path.to_string(),
        methods: route.conditions.methods.to_vec(),
        headers: names(&route.conditions.headers),
        queries: names(&route.conditions.queries),
    }
}

impl ListenerNode {
    /// A node with the values of the merged listener.
    fn unnamed(offered: &MergedListener) -> Self {
        Self {
            name: Arc::clone(&offered.listener.section),
            set: (offered.listener.owner.kind == Kind::ListenerSet).then(|| offered.listener.owner.clone()),
            protocol: String::new(),
            port: offered.port,
            host: offered.host.to_string(),
            sockets: Vec::new(),
            idle: None,
            routes: Vec::new(),
        }
    }
}
