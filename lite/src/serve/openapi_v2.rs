//! OpenAPI v2, as far as kubectl needs it: if it does not find a kind in v3, it looks here for server-side field
//! validation before it reports an unknown kind. Clients accept it as protobuf only (gnostic's
//! `openapi.v2.Document`).

use crate::kind::{Kind, KindId, Kinds};

/// The media type of the document; clients ask for exactly this one.
pub(super) const MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Parameters of a patch that clients look for.
const PARAMETERS: [&str; 3] = ["dryRun", "fieldManager", "fieldValidation"];

/// A document with the patch of every served kind, and no definitions.
pub(super) fn document(kinds: &Kinds) -> Vec<u8> {
    let mut paths = Vec::new();
    for kind in kinds.iter().map(KindId::description).filter(|kind| !kind.question) {
        // Paths.path: a NamedPathItem of a name and a PathItem, whose eighth field is the patch.
        let item = [text(1, &path(kind)), part(2, &part(8, &patch(kind)))].concat();
        paths.extend(part(2, &item));
    }
    let info = [text(1, "Tidegate"), text(2, "unversioned")].concat();
    [text(1, "2.0"), part(2, &info), part(8, &paths)].concat()
}

fn path(kind: &Kind) -> String {
    let prefix = if kind.group.is_empty() { "/api/" } else { "/apis/" };
    let namespace = if kind.namespaced() { "/namespaces/{namespace}" } else { "" };
    format!("{prefix}{}{namespace}/{}/{{name}}", kind.api_version(), kind.plural)
}

/// An Operation.
fn patch(kind: &Kind) -> Vec<u8> {
    let mut operation = Vec::new();
    for name in PARAMETERS {
        // A parameter that is not a body (field 2) but one of the query (field 3): its location, and its name.
        let query = [text(2, "query"), text(4, name)].concat();
        operation.extend(part(8, &part(1, &part(2, &part(3, &query)))));
    }
    // A vendor extension: its name, and a value in YAML. Names of groups and kinds need no quotes.
    let value = format!("{{group: \"{}\", version: {}, kind: {}}}", kind.group, kind.version, kind.kind);
    let extension = [text(1, "x-kubernetes-group-version-kind"), part(2, &text(2, &value))].concat();
    operation.extend(part(13, &extension));
    operation
}

fn text(field: u64, text: &str) -> Vec<u8> {
    part(field, text.as_bytes())
}

/// A length-delimited field: a text or a message.
fn part(field: u64, bytes: &[u8]) -> Vec<u8> {
    let mut encoded = number(field << 3 | 2);
    encoded.extend(number(bytes.len() as u64));
    encoded.extend_from_slice(bytes);
    encoded
}

/// A varint: groups of seven bits, the lowest first.
fn number(mut rest: u64) -> Vec<u8> {
    let mut encoded = Vec::new();
    while rest > 0x7f {
        encoded.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    encoded.push(rest as u8);
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_encoded_as_protobuf() {
        assert_eq!(number(300), [0xac, 0x02]);
        assert_eq!(text(2, "testing"), *b"\x12\x07testing");
        let document = document(&Kinds::built_in());
        assert!(document.starts_with(b"\x0a\x032.0\x12\x17\x0a\x08Tidegate\x12\x0bunversioned\x42"));
        let namespaces = b"/api/v1/namespaces/{name}";
        assert!(document.windows(namespaces.len()).any(|part| part == namespaces));
    }
}
