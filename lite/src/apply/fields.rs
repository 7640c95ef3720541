//! A set of fields of an object: those that a manager owns, or that a change touches. It is a tree of steps, as in
//! `fieldsV1`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::step::Step;

/// The maximum depth of a tree from a client.
const DEPTH_MAX: usize = 100;

/// Paths into an object. A path is in the set if its node exists in the tree and is marked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    /// `true` if the path of this node is in the set.
    here: bool,
    below: BTreeMap<Step, Fields>,
}

/// One path of a set.
pub(crate) type Path = Vec<Step>;

impl Fields {
    pub(crate) fn is_empty(&self) -> bool {
        !self.here && self.below.is_empty()
    }

    /// Returns `true` if the path of this node is in the set.
    pub(crate) fn is_here(&self) -> bool {
        self.here
    }

    /// The subset below a step.
    pub(crate) fn below(&self, step: &Step) -> Option<&Self> {
        self.below.get(step)
    }

    /// Adds a path. The empty one stands for the whole object, which never has an owner.
    pub(crate) fn insert(&mut self, path: &[Step]) {
        if path.is_empty() {
            return;
        }
        path.iter().fold(self, |fields, step| fields.below.entry(step.clone()).or_default()).here = true;
    }

    /// A set from paths of plain field names.
    pub(crate) fn named(paths: &[&[&str]]) -> Self {
        let mut fields = Self::default();
        for path in paths {
            fields.insert(&path.iter().map(|name| Step::field(name)).collect::<Path>());
        }
        fields
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.extend(other);
        all
    }

    /// Adds the fields of another set. Its work grows with that one alone.
    pub(crate) fn extend(&mut self, other: &Self) {
        self.here |= other.here;
        for (step, fields) in &other.below {
            match self.below.get_mut(step) {
                Some(mine) => mine.extend(fields),
                None => drop(self.below.insert(step.clone(), fields.clone())),
            }
        }
    }

    /// The paths that are in this set and not in the other.
    pub(crate) fn without(&self, other: &Self) -> Self {
        self.pick(
            |step| other.below.get(step),
            self.here && !other.here,
            |mine, others| match others {
                Some(others) => mine.without(others),
                None => mine.clone(),
            },
        )
    }

    /// The paths that are in both.
    pub(crate) fn common(&self, other: &Self) -> Self {
        self.pick(
            |step| other.below.get(step),
            self.here && other.here,
            |mine, others| match others {
                Some(others) => mine.common(others),
                None => Self::default(),
            },
        )
    }

    /// The paths that are not in the other set, nor below one that is.
    pub(crate) fn outside(&self, other: &Self) -> Self {
        self.pick(
            |step| other.below.get(step),
            self.here && !other.here,
            |mine, others| match others {
                Some(others) if others.here => Self::default(),
                Some(others) => mine.outside(others),
                None => mine.clone(),
            },
        )
    }

    fn pick<'a>(
        &self,
        others: impl Fn(&Step) -> Option<&'a Self>,
        here: bool,
        part: impl Fn(&Self, Option<&'a Self>) -> Self,
    ) -> Self {
        let below = self.below.iter().map(|(step, mine)| (step.clone(), part(mine, others(step))));
        Self { here, below: below.filter(|(_, fields)| !fields.is_empty()).collect() }
    }

    /// The same tree with more paths in it: `named` decides for a step with paths below it whether it is a path too,
    /// and returns its argument for the next level.
    pub(crate) fn with_named<N: Copy>(&self, node: N, named: &impl Fn(N, &Step) -> (N, bool)) -> Self {
        let below = self.below.iter().map(|(step, fields)| {
            let (node, is_named) = named(node, step);
            let mut fields = fields.with_named(node, named);
            fields.here |= is_named && !fields.below.is_empty();
            (step.clone(), fields)
        });
        Self { here: self.here, below: below.collect() }
    }

    /// Every path, those that end at a level before those that go on below it, in the order of the real server.
    pub(crate) fn paths(&self) -> Vec<Path> {
        let mut found = Vec::new();
        self.collect(&mut Vec::new(), &mut found);
        found
    }

    fn collect(&self, path: &mut Path, found: &mut Vec<Path>) {
        for (step, _) in self.below.iter().filter(|(_, fields)| fields.here) {
            found.push(path.iter().chain([step]).cloned().collect());
        }
        for (step, fields) in self.below.iter().filter(|(_, fields)| !fields.below.is_empty()) {
            path.push(step.clone());
            fields.collect(path, found);
            path.pop();
        }
    }

    /// Reads `fieldsV1`. Returns `None` for any other value, or one deeper than any real one.
    pub(crate) fn decode(fields: &Value) -> Option<Self> {
        Self::decode_within(fields, DEPTH_MAX).map(|fields| Self { here: false, ..fields })
    }

    fn decode_within(value: &Value, depth: usize) -> Option<Self> {
        let depth = depth.checked_sub(1)?;
        let map = value.as_object()?;
        let mut fields = Self { here: map.is_empty() || map.contains_key("."), below: BTreeMap::new() };
        for (key, value) in map.iter().filter(|(key, _)| *key != ".") {
            fields.below.insert(Step::parse(key)?, Self::decode_within(value, depth)?);
        }
        Some(fields)
    }

    /// Writes `fieldsV1`.
    pub(crate) fn encode(&self) -> Value {
        let mut map = Map::new();
        if self.here && !self.below.is_empty() {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        map.extend(self.below.iter().map(|(step, fields)| (step.encode(), fields.encode())));
        Value::Object(map)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(json: Value) -> Fields {
        Fields::decode(&json).unwrap()
    }

    #[test]
    fn fields_round_trip() {
        let json =
            json!({"f:a": {".": {}, "f:b": {}, "k:{\"name\":\"x\"}": {".": {}, "f:c": {}}}, "f:d": {"v:\"e\"": {}}});
        assert_eq!(fields(json.clone()).encode(), json);
        let shown: Vec<String> =
            fields(json).paths().iter().map(|path| path.iter().map(Step::to_string).collect()).collect();
        assert_eq!(shown, [".a", ".a.b", ".a[name=\"x\"]", ".a[name=\"x\"].c", ".d[=\"e\"]"]);
        for bad in [json!([]), json!({"a": {}}), json!({"f:a": 1})] {
            assert_eq!(Fields::decode(&bad), None);
        }
        let deep = (0..DEPTH_MAX).fold(json!({}), |below, _| json!({"f:a": below}));
        assert_eq!(Fields::decode(&deep), None);
    }

    #[test]
    fn sets_combine() {
        let left = fields(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
        let right = fields(json!({"f:a": {}, "f:d": {}}));
        assert_eq!(left.union(&right).encode(), json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}, "f:d": {}}));
        assert_eq!(left.without(&right).encode(), json!({"f:a": {"f:b": {}}, "f:c": {}}));
        assert_eq!(left.common(&right).encode(), json!({"f:a": {}}));
        assert_eq!(left.outside(&right).encode(), json!({"f:c": {}}));
        assert!(left.without(&left).is_empty());
        assert_eq!(Fields::named(&[&["a", "b"], &["c"]]).encode(), json!({"f:a": {"f:b": {}}, "f:c": {}}));
    }
}
