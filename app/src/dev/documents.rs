//! Manifests as text: YAML files of several documents, JSON files, Lists. A broken document does not affect the others.

use serde::Deserialize as _;
use serde_json::Value;

/// The maximum size of a file.
pub(super) const FILE_BYTES_MAX: u64 = 8 << 20;

/// The identity of an object. Its order is the order of creation: namespaces first, then the rest by name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Identity {
    /// `true` for kinds that may be contained in others: false sorts first.
    contained: bool,
    pub(super) api_version: String,
    pub(super) kind: String,
    /// Empty if the manifest has no namespace.
    pub(super) namespace: String,
    pub(super) name: String,
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, namespace, name, .. } = self;
        if namespace.is_empty() { write!(f, "{kind} {name}") } else { write!(f, "{kind} {namespace}/{name}") }
    }
}

/// One object of a file.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Document {
    /// Its position in the file, from 1; comments and empty documents are counted.
    pub(super) number: usize,
    pub(super) identity: Identity,
    pub(super) object: Value,
}

/// A document that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Unreadable {
    /// Its position in the file, from 1.
    pub(super) number: usize,
    pub(super) why: String,
}

/// Reads the text of a file. JSON is YAML, so both are read in the same way.
pub(super) fn read(text: &str) -> Vec<Result<Document, Unreadable>> {
    let mut found = Vec::new();
    for (number, text) in (1..).zip(split(text)) {
        match parse(text) {
            Ok(Value::Null) => {}
            Ok(value) => found.extend(unpack(value).map(|object| {
                object.and_then(|object| Ok((identify(&object)?, object))).map_or_else(
                    |why| Err(Unreadable { number, why }),
                    |(identity, object)| Ok(Document { number, identity, object }),
                )
            })),
            Err(why) => found.push(Err(Unreadable { number, why })),
        }
    }
    found
}

/// The documents of a stream. A line that begins with `---` is always a boundary: YAML 1.2 section 9.1.2 allows it in
/// no scalar.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    for line in text.split_inclusive('\n') {
        let rest = line.strip_prefix("---");
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace)) {
            parts.extend(text.get(start..at).filter(|_| at > 0));
            // The rest of the line after the dashes belongs to the document.
            start = at + 3;
        }
        at += line.len();
    }
    parts.extend(text.get(start..));
    parts
}

fn parse(text: &str) -> Result<Value, String> {
    let blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if text.lines().all(blank) {
        return Ok(Value::Null);
    }
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|why| why.to_string());
    }
    serde_saphyr::from_str::<Value>(text).map_err(|why| first_line(&why.to_string()))
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// The objects of a List, or the object itself.
fn unpack(mut value: Value) -> impl Iterator<Item = Result<Value, String>> {
    let list = value.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    let objects = match value.get_mut("items").map(Value::take) {
        Some(items) if list => Vec::<Value>::deserialize(items).map_err(|why| format!("items: {why}")),
        Some(items) => {
            if let Value::Object(fields) = &mut value {
                fields.insert("items".to_owned(), items);
            }
            Ok(vec![value])
        }
        None => Ok(vec![value]),
    };
    let (objects, fault) = objects.map_or_else(|why| (Vec::new(), Some(Err(why))), |objects| (objects, None));
    objects.into_iter().map(Ok).chain(fault)
}

fn identify(object: &Value) -> Result<Identity, String> {
    if !object.is_object() {
        return Err("is not an object".to_owned());
    }
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty());
    let wanted =
        |path: &str| text(path).ok_or_else(|| format!("has no {}", path.trim_start_matches('/').replace('/', ".")));
    let kind = wanted("/kind")?.to_owned();
    Ok(Identity {
        contained: kind != "Namespace" && kind != "CustomResourceDefinition",
        api_version: wanted("/apiVersion")?.to_owned(),
        namespace: text("/metadata/namespace").unwrap_or_default().to_owned(),
        name: wanted("/metadata/name")?.to_owned(),
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: &[&str]) {
        let got: Vec<String> = read(text)
            .into_iter()
            .map(|found| match found {
                Ok(document) => format!("{}: {}", document.number, document.identity),
                Err(fault) => format!("{}! {}", fault.number, fault.why),
            })
            .collect();
        assert_eq!(got, want, "{text}");
    }

    const A: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: shop}\n";

    #[test]
    fn documents_are_split_at_their_boundaries() {
        check("", &[]);
        check("# nothing\n---\n# here\n", &[]);
        check(A, &["1: Service shop/a"]);
        check(&format!("---\n{A}---\n{A}"), &["1: Service shop/a", "2: Service shop/a"]);
        check(&format!("--- # first\n{A}---   \n"), &["1: Service shop/a"]);
        check(&format!("{A}data: |\n  ---\n  x\n---\n{A}"), &["1: Service shop/a", "2: Service shop/a"]);
        check(&format!("{A}data: '----'\n"), &["1: Service shop/a"]);
    }

    #[test]
    fn a_broken_document_does_not_stop_the_others() {
        check(
            &format!("kind: Service\n---\n{A}---\n- a\n---\napiVersion: v1\nkind: Secret\n"),
            &["1! has no apiVersion", "2: Service shop/a", "3! is not an object", "4! has no metadata.name"],
        );
        let broken = read(&format!("a: [\n---\n{A}"));
        assert_eq!(broken[0].as_ref().unwrap_err().number, 1);
        assert_eq!(broken[1].as_ref().unwrap().identity.name, "a");
    }

    #[test]
    fn json_and_lists() {
        let a = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}"#;
        check(a, &["1: Namespace shop"]);
        check(
            &format!(r#"{{"apiVersion":"v1","kind":"List","items":[{a},{a}]}}"#),
            &["1: Namespace shop", "1: Namespace shop"],
        );
        check(
            r#"{"apiVersion":"v1","kind":"List","items":3}"#,
            &["1! items: invalid type: integer `3`, expected a sequence"],
        );
        check("{", &["1! EOF while parsing an object at line 1 column 1"]);
    }

    #[test]
    fn namespaces_come_first() {
        let identities = |text| read(text).into_iter().map(|d| d.unwrap().identity).collect::<Vec<_>>();
        let mut all = identities(&format!("{A}---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: z}}\n"));
        all.sort();
        assert_eq!(all[0].kind, "Namespace");
    }
}
