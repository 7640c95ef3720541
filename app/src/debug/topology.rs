//! The tree of attachments, from class to backend; and the references between objects, as JSON and as a graph for
//! Graphviz.

use std::fmt::Write as _;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tidegate_config::object::ObjectRef;
use tidegate_control::{Key, TreeQuery};

use super::{Debug, bad_request, not_running};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Question {
    format: Option<String>,
    /// Shows only Gateways and routes of this namespace, and the routes and ListenerSets attached to such Gateways.
    namespace: Option<String>,
    /// The same by name.
    name: Option<String>,
    /// The start of this page, as the previous page gave it.
    after: Option<String>,
    /// The maximum number of Gateways and routes.
    limit: Option<usize>,
}

/// Responds with 404 if the selected part of the tree is empty.
pub(super) async fn page(State(debug): State<Debug>, Query(question): Query<Question>) -> Response {
    let Question { format, namespace, name, after, limit } = question;
    let after = match after.as_deref().map(TreeQuery::read_after).transpose() {
        Ok(after) => after,
        Err(why) => return bad_request(&why),
    };
    let query = TreeQuery { namespace, name, after, limit };
    match format.as_deref() {
        None | Some("json" | "text") => {
            let Some(tree) = debug.view.tree(query).await else { return not_running() };
            let status = if tree.classes.is_empty() { StatusCode::NOT_FOUND } else { StatusCode::OK };
            match format.as_deref() {
                Some("text") => (status, format!("{tree}{}", held(&debug))).into_response(),
                _ => (status, Json(tree)).into_response(),
            }
        }
        Some("edges") => match debug.view.topology().await {
            Some(all) => Json(edges(&all)).into_response(),
            None => not_running(),
        },
        Some("dot") => match debug.view.topology().await {
            Some(all) => ([(CONTENT_TYPE, "text/vnd.graphviz; charset=utf-8")], dot(&all)).into_response(),
            None => not_running(),
        },
        Some(other) => bad_request(&format!("unknown format {other:?}: expected json, text, edges or dot")),
    }
}

/// A line for the case that the tree is not what serves.
fn held(debug: &Debug) -> String {
    let held = debug.view.readiness().borrow().held;
    held.map(|held| format!("held: the routes of generation {held} serve instead, by a freeze or a rollback\n"))
        .unwrap_or_default()
}

/// One reference.
#[derive(Serialize)]
struct Edge<'a> {
    from: &'a ObjectRef,
    to: &'a Key,
}

fn edges(edges: &[(ObjectRef, Key)]) -> Vec<Edge<'_>> {
    edges.iter().map(|(from, to)| Edge { from, to }).collect()
}

fn dot(edges: &[(ObjectRef, Key)]) -> String {
    let mut text = "digraph topology {\n  rankdir=LR;\n  node [shape=box];\n".to_owned();
    for (from, to) in edges {
        let _ = writeln!(text, "  {} -> {};", quoted(&from.to_string()), quoted(&to.to_string()));
    }
    text.push_str("}\n");
    text
}

/// A quoted ID of the DOT language, in which only the quotation mark and a backslash before it need escaping.
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
