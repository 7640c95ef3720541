//! The classes of objects whose status another client keeps overwriting, and the findings about it.

use std::collections::BTreeMap;

use tidegate_config::finding::Finding;
use tidegate_config::object::{Kind, ObjectName, ObjectRef};

use super::{Model, PendingReports};
use crate::attachment::Verdict;
use crate::sources::parent_of;

impl Model {
    /// The objects whose owner can say which edge an object belongs to: its class, as far as it has one that can be
    /// read, and otherwise the object itself. A route has a status entry of a controller and not of a class, so it has
    /// all classes of the controller.
    pub(crate) fn classes_of(&self, object: &ObjectRef) -> Vec<ObjectRef> {
        let classes = if object.kind.has_parents() {
            self.gateway_classes_of_ours()
        } else if object.kind == Kind::Ingress {
            self.ingress_class_of(object).into_iter().collect()
        } else if object.kind == Kind::ListenerSet {
            let parent = self.world.listener_sets.get(&object.name).and_then(|set| parent_of(set));
            parent.and_then(|parent| self.gateway_class_of(&parent.name)).into_iter().collect()
        } else {
            self.gateway_class_of(&object.name).into_iter().filter(|_| object.kind == Kind::Gateway).collect()
        };
        if classes.is_empty() { vec![object.clone()] } else { classes }
    }

    fn ingress_class_of(&self, ingress: &ObjectRef) -> Option<ObjectRef> {
        let Verdict::Served(class) = self.compiled.verdicts.get(ingress)? else { return None };
        let (name, _) = self.world.classes.get_key_value(&ObjectName::new("", &**class))?;
        Some(ObjectRef::new(Kind::IngressClass, name.clone()))
    }

    fn gateway_class_of(&self, gateway: &ObjectName) -> Option<ObjectRef> {
        let class = &self.world.gateways.get(gateway)?.class;
        let (name, _) = self.world.gateway_classes.get_key_value(class)?;
        Some(ObjectRef::new(Kind::GatewayClass, name.clone()))
    }

    fn gateway_classes_of_ours(&self) -> Vec<ObjectRef> {
        let Some(ours) = &self.options.sources.gateway else { return Vec::new() };
        let classes = self.world.gateway_classes.iter().filter(|(_, class)| class.controller == ours.controller);
        classes.map(|(name, _)| ObjectRef::new(Kind::GatewayClass, name.clone())).collect()
    }
}

impl PendingReports<'_> {
    /// Replaces the findings that do not follow from the objects, at most one of each object.
    pub(crate) fn put_findings_apart(&mut self, findings: BTreeMap<ObjectRef, Finding>) {
        self.model.compiled.put_findings_apart(findings);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tidegate_config::project::project;

    use super::*;
    use crate::options::{GatewayApi, GatewayServices, Options, Sources};

    #[test]
    fn the_class_of_an_object_is_the_one_that_its_owner_can_change() {
        let (controller, addresses, services) = ("tidegate.io/gateway".into(), [].into(), GatewayServices::Off);
        let gateway = GatewayApi { controller, addresses, services, optional: false };
        let sources = Sources { gateway: Some(gateway), ..Sources::default() };
        let mut model = Model::new(Options { sources, ..Options::default() });
        let mut apply = |kind: Kind, namespace: &str, name: &str, spec: Value| {
            let metadata = json!({"namespace": namespace, "name": name, "resourceVersion": "1"});
            let object = json!({"metadata": metadata, "spec": spec});
            model.world.apply(project(kind, object.to_string().as_bytes()).unwrap());
        };
        apply(Kind::IngressClass, "", "edge", json!({"controller": "tidegate.io/ingress"}));
        apply(Kind::Ingress, "a", "field", json!({"ingressClassName": "edge"}));
        apply(Kind::GatewayClass, "", "ours", json!({"controllerName": "tidegate.io/gateway"}));
        apply(Kind::GatewayClass, "", "others", json!({"controllerName": "example.com/other"}));
        let listeners = json!([{"name": "http", "port": 80, "protocol": "HTTP"}]);
        apply(Kind::Gateway, "a", "gate", json!({"gatewayClassName": "ours", "listeners": listeners}));
        apply(Kind::ListenerSet, "a", "set", json!({"parentRef": {"name": "gate"}, "listeners": listeners}));
        apply(Kind::HttpRoute, "a", "route", json!({"parentRefs": [{"name": "gate"}]}));
        model.compile_all();
        let check = |kind: Kind, namespace: &str, name: &str, want: &str| {
            let found = model.classes_of(&ObjectRef::new(kind, ObjectName::new(namespace, name)));
            assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), [want], "{kind} {name}");
        };
        check(Kind::Ingress, "a", "field", "IngressClass edge");
        check(Kind::Ingress, "a", "gone", "Ingress a/gone");
        check(Kind::GatewayClass, "", "ours", "GatewayClass ours");
        for (kind, name) in [(Kind::Gateway, "gate"), (Kind::ListenerSet, "set"), (Kind::HttpRoute, "route")] {
            check(kind, "a", name, "GatewayClass ours");
        }
    }
}
