//! URLs of requests, whose servers are fixed and whose paths may depend on the request.

use super::call::check_url_length;
use super::http_rule::HttpReader;
use crate::model::auth::{CallPath, CallServer, PathPiece};
use crate::project::field::InvalidValue;
use crate::project::kuadrant::policy::fault;

impl HttpReader<'_, '_> {
    /// `url`: a URL with a selector in each pair of braces after its host.
    pub(super) fn url_template(&self, text: &str, field: &str) -> Result<(CallServer, CallPath), InvalidValue> {
        check_url_length(text, field)?;
        let unusable = |why: &str| fault(field, text, why);
        let (server, mut rest) = CallServer::split(text).map_err(unusable)?;
        let mut pieces = Vec::new();
        // What a request puts between the texts has no characters that must be encoded.
        let mut sample = String::new();
        if !rest.starts_with('/') {
            pieces.push(PathPiece::Text("/".into()));
            sample.push('/');
        }
        while let Some((before, after)) = rest.split_once('{') {
            let (selector, after) = after.split_once('}').ok_or_else(|| unusable("has a { without a }"))?;
            pieces.extend((!before.is_empty()).then(|| PathPiece::Text(before.into())));
            pieces.push(PathPiece::Value(self.rules.selector(selector, field)?));
            sample.extend([before, "x"]);
            rest = after;
        }
        pieces.extend((!rest.is_empty()).then(|| PathPiece::Text(rest.into())));
        sample.push_str(rest);
        if sample.contains('}') || !CallServer::is_path(&sample) {
            return Err(unusable("has characters that a URL must have encoded"));
        }
        Ok((server, CallPath::Pieces(pieces.into())))
    }

    /// `urlExpression`: an expression that begins with a text that has the scheme and the host.
    pub(super) fn url_expression(&mut self, source: &str, field: &str) -> Result<(CallServer, CallPath), InvalidValue> {
        let expression = self.rules.expressions.value(source, field)?;
        let literal = first_literal(source).ok_or_else(|| {
            let why =
                "does not begin with a text that has the scheme and the host, which are looked up before requests";
            fault(field, source, why)
        })?;
        let unusable = |why: &str| fault(field, source, &format!("begins with {literal:?}, which {why}"));
        let (server, rest) = CallServer::split(literal).map_err(unusable)?;
        // Without anything after it, it may go on.
        if rest.is_empty() && literal.ends_with('.') {
            return Err(unusable("has no whole host"));
        }
        Ok((server, CallPath::Expression(expression)))
    }
}

/// The text that an expression begins with, if it is written without escapes.
fn first_literal(source: &str) -> Option<&str> {
    let source = source.trim_start();
    let quote = source.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
    let (literal, _) = source.get(1..)?.split_once(quote)?;
    (!literal.is_empty() && !literal.contains('\\')).then_some(literal)
}
