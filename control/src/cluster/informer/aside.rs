//! Objects with regular expressions, whose projection may take a tenth of a second. They are projected one at a time
//! beside the watch, on a thread for blocking work, so that no other object waits for them. The objects with the fewest
//! expressions come first.

use std::collections::BTreeMap;
use std::future::pending;
use std::time::Instant;

use tidegate_config::object::{Kind, ObjectRef};
use tidegate_config::project::{ExpressionPool, Projected, Unidentified, project, project_listed};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

/// The maximum memory of waiting objects in bytes. Beyond it, the watch waits.
const BYTES_MAX: usize = 16 << 20;

/// An object that is projected beside the watch.
pub(super) struct Made {
    pub(super) projected: Box<Projected>,
    /// The arrival time of its bytes.
    pub(super) received: Instant,
}

/// The objects of one watch that wait for their projection, or are projected now.
#[derive(Default)]
pub(super) struct Aside {
    waiting: BTreeMap<Turn, Waiting>,
    /// The turn of each waiting object. A later event of an object replaces an earlier one.
    turns: BTreeMap<ObjectRef, Turn>,
    /// The object that is projected now, unless it has changed again meanwhile.
    current: Option<ObjectRef>,
    running: Option<JoinHandle<Option<Made>>>,
    /// The bytes of the waiting objects.
    bytes: usize,
    arrivals: u64,
}

/// The order in which objects are projected.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    expressions: usize,
    arrival: u64,
}

struct Waiting {
    object: ObjectRef,
    bytes: Box<[u8]>,
    received: Instant,
}

/// Projects an object on a thread for blocking work.
///
/// # Errors
/// If the object has no identity.
pub(super) async fn project_aside(kind: Kind, bytes: Box<[u8]>) -> Result<Projected, Unidentified> {
    ended(spawn_blocking(move || project(kind, &bytes))).await
}

/// The same for an object of a list. Returns the pool, too.
pub(super) async fn project_listed_aside(
    kind: Kind,
    bytes: Box<[u8]>,
    mut pool: ExpressionPool,
) -> (Result<Projected, Unidentified>, ExpressionPool) {
    ended(spawn_blocking(move || (project_listed(kind, &bytes, &mut pool), pool))).await
}

/// The result of a projection, which does not panic.
async fn ended<T>(running: impl Future<Output = Result<T, JoinError>>) -> T {
    match running.await {
        Ok(result) => result,
        // The runtime ends.
        Err(_cancelled) => pending().await,
    }
}

impl Aside {
    /// Takes an identified object with this number of expressions. An earlier state of it is dropped.
    pub(super) fn put(&mut self, object: ObjectRef, bytes: &[u8], expressions: usize, received: Instant) {
        self.forget(&object);
        self.arrivals += 1;
        let turn = Turn { expressions, arrival: self.arrivals };
        self.bytes += bytes.len();
        self.turns.insert(object.clone(), turn);
        self.waiting.insert(turn, Waiting { object, bytes: bytes.into(), received });
    }

    /// Drops an object, because a later event of it has arrived.
    pub(super) fn forget(&mut self, object: &ObjectRef) {
        if let Some(waiting) = self.turns.remove(object).and_then(|turn| self.waiting.remove(&turn)) {
            self.bytes -= waiting.bytes.len();
        }
        self.current.take_if(|current| current == object);
    }

    /// Returns `true` if the watch has to wait before it reads on.
    pub(super) const fn is_full(&self) -> bool {
        self.bytes > BYTES_MAX
    }

    /// The next projected object; `None` if there are none. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Made> {
        loop {
            if self.running.is_none() {
                self.running = self.begin();
            }
            let made = ended(self.running.as_mut()?).await;
            self.running = None;
            if self.current.take().is_some() && made.is_some() {
                return made;
            }
        }
    }

    fn begin(&mut self) -> Option<JoinHandle<Option<Made>>> {
        let (_, Waiting { object, bytes, received }) = self.waiting.pop_first()?;
        self.turns.remove(&object);
        self.bytes -= bytes.len();
        let kind = object.kind;
        self.current = Some(object);
        // It was identified before.
        let made = move || project(kind, &bytes).ok().map(|it| Made { projected: Box::new(it), received });
        Some(spawn_blocking(made))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate_config::object::ObjectName;

    use super::*;
    use crate::clock;

    fn object(name: &str) -> ObjectRef {
        ObjectRef::new(Kind::HttpRoute, ObjectName::new("shop", name))
    }

    /// An HTTPRoute with this number of expressions.
    fn route(name: &str, version: &str, expressions: usize) -> String {
        let one = |number| json!({"path": {"type": "RegularExpression", "value": format!("/{number}.*")}});
        let matches: Vec<_> = (0..expressions).map(one).collect();
        let metadata = json!({"name": name, "namespace": "shop", "resourceVersion": version});
        json!({"metadata": metadata, "spec": {"rules": [{"matches": matches}]}}).to_string()
    }

    fn put(aside: &mut Aside, name: &str, version: &str, expressions: usize) {
        aside.put(object(name), route(name, version, expressions).as_bytes(), expressions, clock::now());
    }

    async fn all(aside: &mut Aside) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(Made { projected, .. }) = aside.next().await {
            let meta = &projected.meta;
            all.push(format!("{} {}", meta.object.name.name, meta.resource_version));
        }
        assert!(aside.turns.is_empty() && aside.bytes == 0);
        all
    }

    #[tokio::test]
    async fn objects_with_few_expressions_come_first() {
        let mut aside = Aside::default();
        for (name, expressions) in [("many", 60), ("some", 6), ("one", 1), ("other", 1)] {
            put(&mut aside, name, "1", expressions);
        }
        assert_eq!(all(&mut aside).await, ["one 1", "other 1", "some 1", "many 1"]);
    }

    #[tokio::test]
    async fn a_later_state_replaces_an_earlier_one() {
        let mut aside = Aside::default();
        put(&mut aside, "a", "1", 1);
        put(&mut aside, "b", "2", 2);
        put(&mut aside, "a", "3", 3);
        put(&mut aside, "c", "4", 4);
        aside.forget(&object("c"));
        assert_eq!(all(&mut aside).await, ["b 2", "a 3"]);
    }

    #[tokio::test]
    async fn a_later_state_replaces_one_that_is_projected_now() {
        let mut aside = Aside::default();
        put(&mut aside, "a", "1", 60);
        // As a call of `next` that was cancelled.
        aside.running = aside.begin();
        put(&mut aside, "a", "2", 1);
        assert_eq!(all(&mut aside).await, ["a 2"]);
        put(&mut aside, "b", "3", 60);
        aside.running = aside.begin();
        aside.forget(&object("b"));
        assert!(all(&mut aside).await.is_empty());
    }

    #[tokio::test]
    async fn waiting_objects_have_a_limit_of_memory() {
        let mut aside = Aside::default();
        let bytes = vec![b' '; 1 << 20];
        (0..16).for_each(|number| aside.put(object(&number.to_string()), &bytes, 1, clock::now()));
        assert!(!aside.is_full());
        aside.put(object("one more"), &bytes, 1, clock::now());
        assert!(aside.is_full());
    }
}
