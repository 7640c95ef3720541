//! `regexDomain`: an alternative beginning of the hosts of an application.

use super::deis_value::DeisDomain;
use crate::model::HostExpression;
use crate::project::expressions::{Compiling, Expressions};
use crate::project::field::FindingList;
use crate::project::raw_object::annotation_field;

/// The key of its annotation.
pub(in crate::project) const REGEX_DOMAIN: &str = "router.deis.io/regexDomain";

/// The maximum length of its text in bytes, and the maximum number of domains that it replaces. The compiled size has a
/// limit too.
const TEXT_BYTES_MAX: usize = 1024;
const DOMAINS_MAX: usize = 16;

/// An expression for hosts that replaces some domains of an application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeisExpression {
    /// The domains.
    pub domains: Box<[DeisDomain]>,
    /// Names that begin with one of the domains, or with a match of the application's expression, followed by a dot and
    /// more labels.
    pub host: HostExpression,
}

/// The expression of an application with this creation time in seconds since the Unix epoch. It replaces the domains
/// that occur in its text.
pub(super) fn expression(
    created_s: i64,
    domains: &[DeisDomain],
    text: Option<&str>,
    compiling: Compiling<'_>,
    findings: &mut FindingList,
) -> Option<DeisExpression> {
    let text = text.filter(|text| !text.trim().is_empty())?;
    let field = annotation_field(REGEX_DOMAIN);
    if text.len() > TEXT_BYTES_MAX {
        findings.dropped(&field, text, format_args!("is longer than {TEXT_BYTES_MAX} bytes"));
        return None;
    }
    let lower = text.to_ascii_lowercase();
    let mut about = domains.iter().filter(|domain| lower.contains(&domain.to_string()));
    let meant: Vec<DeisDomain> = about.by_ref().take(DOMAINS_MAX).cloned().collect();
    if let Some(more) = about.next() {
        findings.dropped(
            &field,
            &more.to_string(),
            format_args!("exceeds the limit of {DOMAINS_MAX} domains in the expression"),
        );
    }
    let names: Vec<String> = meant.iter().map(|domain| regex_syntax::escape(&domain.to_string())).collect();
    // Checked by itself first, because it becomes one branch of an alternation.
    let mut expressions = Expressions::new(1, compiling);
    let host = expressions.check(text).and_then(|()| {
        let whole = format!(r"(?:{}|{text})\..+", names.join("|"));
        expressions.compile(&whole, HostExpression::COMPARISON)
    });
    match host {
        Ok(expression) if !meant.is_empty() => {
            let host = HostExpression::new(created_s, expression);
            return Some(DeisExpression { domains: meant.into(), host });
        }
        Ok(_) if domains.is_empty() => {}
        Ok(_) => findings.without_effect(&field, text, "it contains none of the domains"),
        Err(why) => findings.dropped(&field, text, why),
    }
    None
}
