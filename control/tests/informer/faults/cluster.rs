//! A small cluster with its API server: paged lists, watches, 410 for expired versions, and objects by name. A fault
//! may replace its answers.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tidegate_config::object::Kind;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::super::fake_api::{Answer, Seen, Step};
use super::super::{MS, frame};
use super::credentials::SHOWN;

/// Shops `h00.example` to `h23.example`, each with an Ingress, a Service and a slice.
pub(super) const SHOPS: u8 = 24;

/// The shops with a certificate, in a Secret of the same name.
pub(super) const CERTIFIED: [&str; 3] = ["h00", "h01", "h02"];

/// The namespace of all shops.
pub(super) const NAMESPACE: &str = "shop";

/// The page size, which ignores the request's limit.
const PAGE: usize = 10;

pub(super) struct Cluster {
    objects: BTreeMap<(Kind, String), Value>,
    version: u64,
    /// All events, from the first one on.
    log: Vec<(u64, Kind, String)>,
    /// Events up to this version have expired.
    compacted: u64,
    /// Whether earlier versions may be newer than the current one.
    set_back: bool,
    watches: Vec<(Kind, UnboundedSender<String>)>,
}

impl Cluster {
    pub(super) fn new() -> Self {
        let (objects, log, watches) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut cluster = Self { objects, version: 100, log, compacted: 0, set_back: false, watches };
        cluster.apply(Kind::IngressClass, "tidegate", json!({"spec": {"controller": "tidegate.io/ingress"}}));
        for shop in 0..SHOPS {
            let name = format!("h{shop:02}");
            cluster.apply(Kind::Service, &name, json!({"spec": {"ports": [{"name": "http", "port": 80}]}}));
            cluster.endpoint(&name, shop);
            cluster.ingress(&name, &name);
        }
        CERTIFIED.iter().for_each(|shop| cluster.certify(shop, 0));
        cluster.compact();
        cluster
    }

    /// The Ingress of `NAME.example`, which leads to a Service.
    pub(super) fn ingress(&mut self, name: &str, service: &str) {
        let backend = json!({"service": {"name": service, "port": {"number": 80}}});
        let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
        let rule = json!({"host": format!("{name}.example"), "http": {"paths": [path]}});
        let mut spec = json!({"ingressClassName": "tidegate", "rules": [rule]});
        if CERTIFIED.contains(&name) {
            spec["tls"] = json!([{"secretName": name}]);
        }
        self.apply(Kind::Ingress, name, json!({"spec": spec}));
    }

    /// The certificate of a shop, of [`SHOWN`].
    pub(super) fn certify(&mut self, shop: &str, which: usize) {
        let [chain, key] = [&SHOWN[which].chain, &SHOWN[which].key].map(|pem| ByteString(pem.clone().into_bytes()));
        self.apply(
            Kind::Secret,
            shop,
            json!({"type": "kubernetes.io/tls", "data": {"tls.crt": chain, "tls.key": key}}),
        );
    }

    /// The only endpoint of a Service.
    pub(super) fn endpoint(&mut self, service: &str, address: u8) {
        let slice = json!({
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080}],
            "endpoints": [{"addresses": [format!("10.0.0.{address}")], "conditions": {"ready": true}}],
        });
        self.apply(Kind::EndpointSlice, service, slice);
    }

    fn apply(&mut self, kind: Kind, name: &str, mut object: Value) {
        self.version += 1;
        object["metadata"] = json!({
            "name": name, "uid": format!("{kind}-{name}"), "resourceVersion": self.version.to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        });
        if kind.namespaced() {
            object["metadata"]["namespace"] = json!(NAMESPACE);
        }
        if kind == Kind::EndpointSlice {
            object["metadata"]["labels"] = json!({"kubernetes.io/service-name": name});
        }
        let before = self.objects.insert((kind, name.to_owned()), object.clone());
        self.tell(kind, if before.is_some() { "MODIFIED" } else { "ADDED" }, &object);
    }

    pub(super) fn delete(&mut self, kind: Kind, name: &str) {
        let mut object = self.objects.remove(&(kind, name.to_owned())).unwrap();
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.tell(kind, "DELETED", &object);
    }

    fn tell(&mut self, kind: Kind, what: &str, object: &Value) {
        let event = frame(what, &object.to_string());
        self.watches.retain(|(of, watch)| *of != kind || watch.send(event.clone()).is_ok());
        self.log.push((self.version, kind, event));
    }

    /// Closes all watches.
    pub(super) fn hang_up(&mut self) {
        self.watches.clear();
    }

    /// Changes without any watch events.
    pub(super) fn silently(&mut self, change: impl FnOnce(&mut Self)) {
        let (watches, told) = (std::mem::take(&mut self.watches), self.log.len());
        change(self);
        self.log.truncate(told);
        self.watches = watches;
    }

    /// Drops the history, so that only a client with the newest state can resume.
    pub(super) fn compact(&mut self) {
        self.compacted = self.version;
    }

    /// Continues from an older resourceVersion, as after a restored backup.
    pub(super) fn set_back(&mut self) {
        self.log.clear();
        (self.version, self.compacted, self.set_back) = (50, 0, true);
    }

    /// The answer of a healthy server.
    pub(super) fn answer(&mut self, seen: &Seen) -> Answer {
        match name_of(seen) {
            Some(name) => self.get(seen, name),
            None if seen.is_watch() => self.watch(seen),
            None => self.list(seen),
        }
    }

    fn get(&self, seen: &Seen, name: &str) -> Answer {
        match self.objects.get(&(kind_of(seen), name.to_owned())) {
            Some(object) => Answer::ok(object.to_string()),
            None => Answer::status(404)
                .edited(|_| json!({"code": 404, "reason": "NotFound", "details": {"name": name}}).to_string()),
        }
    }

    fn list(&self, seen: &Seen) -> Answer {
        let of: Vec<&Value> =
            self.objects.iter().filter(|((kind, _), _)| *kind == kind_of(seen)).map(|(_, object)| object).collect();
        let version = self.version.to_string();
        let from = match seen.query.get("continue").map(|token| token.split_once('.').unwrap()) {
            None => 0,
            Some((of, from)) if of == version => from.parse().unwrap(),
            // The pages of a list are from one moment, and the server keeps that moment only while the list lasts.
            Some(_) => return Answer::status(410),
        };
        let to = of.len().min(from + PAGE);
        let mut metadata = json!({"resourceVersion": version});
        if to < of.len() {
            metadata["continue"] = json!(format!("{version}.{to}"));
        }
        Answer::ok(json!({"metadata": metadata, "items": of[from..to]}).to_string())
    }

    fn watch(&mut self, seen: &Seen) -> Answer {
        let kind = kind_of(seen);
        let after: u64 = seen.query["resourceVersion"].parse().unwrap();
        if after < self.compacted {
            return Answer::ok(expired());
        }
        if self.set_back && after > self.version {
            return Answer::status(504);
        }
        let (to, what) = unbounded_channel();
        for (_, _, event) in self.log.iter().filter(|(version, of, _)| *of == kind && *version > after) {
            to.send(event.clone()).unwrap();
        }
        self.watches.push((kind, to));
        let seconds: u64 = seen.query["timeoutSeconds"].parse().unwrap();
        Answer::steps(vec![Step::Relay(what, MS(seconds * 1000))])
    }
}

/// The ERROR event of a watch for an expired resourceVersion.
pub(super) fn expired() -> String {
    frame("ERROR", r#"{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}"#)
}

/// The ERROR event of a watch for an object that the server cannot read.
pub(super) fn internal() -> String {
    frame("ERROR", r#"{"kind":"Status","code":500,"reason":"InternalError","message":"cannot be decrypted"}"#)
}

/// The kind of a request.
pub(super) fn kind_of(seen: &Seen) -> Kind {
    // From the end, because `namespaces` precedes the kind of a namespaced object.
    let kind = |segment: &str| Kind::ALL.into_iter().find(|kind| segment == kind.plural());
    seen.path.rsplit('/').find_map(kind).unwrap()
}

/// The object that a request names, if any.
pub(super) fn name_of(seen: &Seen) -> Option<&str> {
    let (before, last) = seen.path.rsplit_once('/')?;
    before.ends_with(kind_of(seen).plural()).then_some(last)
}

/// The subject of a request: a collection, or an object by its name.
pub(super) type Subject = (Kind, Option<String>);

pub(super) fn subject(seen: &Seen) -> Subject {
    (kind_of(seen), name_of(seen).map(str::to_owned))
}
