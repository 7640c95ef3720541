//! Who refers to whom, as JSON and as a graph for Graphviz.

use std::fmt::Write as _;

use serde::Serialize;
use tidegate_config::object::ObjectRef;
use tidegate_control::Key;

/// One reference.
#[derive(Serialize)]
pub(super) struct Edge<'a> {
    from: &'a ObjectRef,
    to: &'a Key,
}

pub(super) fn edges(edges: &[(ObjectRef, Key)]) -> Vec<Edge<'_>> {
    edges.iter().map(|(from, to)| Edge { from, to }).collect()
}

pub(super) fn dot(edges: &[(ObjectRef, Key)]) -> String {
    let mut text = "digraph topology {\n  rankdir=LR;\n  node [shape=box];\n".to_owned();
    for (from, to) in edges {
        let _ = writeln!(text, "  {} -> {};", quoted(&from.to_string()), quoted(&to.to_string()));
    }
    text.push_str("}\n");
    text
}

/// A quoted ID of the DOT language: only the quotation mark and a backslash before it need care.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_config::object::{Kind, ObjectName};

    #[test]
    fn the_graph_quotes_its_names() {
        let from = ObjectRef::new(Kind::Ingress, ObjectName::new("shop", "we\"b"));
        let to = Key::Object(ObjectRef::new(Kind::Service, ObjectName::new("shop", "cart")));
        let want = "digraph topology {\n  rankdir=LR;\n  node [shape=box];\n  \"Ingress shop/we\\\"b\" -> \"Service shop/cart\";\n}\n";
        assert_eq!(dot(&[(from, to)]), want);
    }
}
