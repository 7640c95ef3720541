//! `regexDomain`: another beginning of the host of a domain.

use super::deis_value::{DeisDomain, EXPRESSION_BYTES_MAX, no_expression};
use crate::model::HostExpression;
use crate::project::field::Found;
use crate::project::source::annotation_field;

/// The domains whose hosts an expression is about, with what takes those hosts: names that begin with the domain, or with what the
/// expression takes, and go on behind a dot. Those are the domains that stand in the text of the expression.
pub(super) fn expressions(
    domains: &[DeisDomain],
    text: Option<&str>,
    found: &mut Found,
) -> Box<[(DeisDomain, HostExpression)]> {
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else { return Box::default() };
    let field = annotation_field("router.deis.io/regexDomain");
    // By itself first, because it is one side of a choice.
    if let Err(why) = HostExpression::new(text, EXPRESSION_BYTES_MAX) {
        found.dropped(&field, text, no_expression(&why));
        return Box::default();
    }
    let lower = text.to_ascii_lowercase();
    let mut expressions = Vec::new();
    for domain in domains {
        let listed = domain.to_string();
        if !lower.contains(&listed) {
            continue;
        }
        match HostExpression::new(&format!(r"(?:{}|{text})\..+", regex::escape(&listed)), EXPRESSION_BYTES_MAX) {
            Ok(expression) => expressions.push((domain.clone(), expression)),
            Err(why) => found.dropped(&field, text, no_expression(&why)),
        }
    }
    if expressions.is_empty() && !domains.is_empty() {
        found.without_effect(&field, text, "none of the domains stands in it");
    }
    expressions.into()
}
