//! Rules of metadata: facts about a request that other services have.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::call::{server_of, timeout};
use super::http_rule::HttpReader;
use super::reader::{Entries, Place, RuleReader, unsupported};
use crate::model::auth::{AuthEntry, AuthenticationMethod, KeySource, Metadata, UserInfo};
use crate::project::field::{InvalidValue, read};
use crate::project::kuadrant::fields::Fields;
use crate::project::kuadrant::policy::fault;

impl RuleReader<'_> {
    pub(super) fn metadata(&mut self, fields: &mut Fields<'_>, place: &Place) -> Result<Metadata, InvalidValue> {
        let (method, raw) = fields.one_of(&["http", "userInfo", "uma"])?;
        let field = fields.at(method);
        match method {
            "http" => HttpReader { rules: self, place }.http(raw, &field).map(Metadata::Http),
            "userInfo" => user_info(&self.entries, raw, &field).map(Metadata::UserInfo),
            _ => Err(unsupported(&field, raw)),
        }
    }
}

/// `identitySource` refers to one of the entries that are read already.
fn user_info(entries: &Entries, raw: &RawValue, field: &str) -> Result<UserInfo, InvalidValue> {
    let mut fields = Fields::read(raw, field)?;
    let timeout = timeout(&mut fields)?;
    let (form, raw) = fields.one_of(&["identitySource", "userInfoUrl"])?;
    let (text, field): (String, _) = (read(raw, &fields.at(form))?, fields.at(form));
    fields.end()?;
    if form == "userInfoUrl" {
        let (server, path) = server_of(&text, &field)?;
        return Ok(UserInfo { identity_source: None, server: Some(server), path, timeout });
    }
    let source = entries.get(&*format!("authentication#{text}"));
    let is_issuer = matches!(source.map(|entry| &**entry), Some(AuthEntry::Authentication(rule))
        if matches!(&rule.rule.method, AuthenticationMethod::Jwt(jwt) if matches!(jwt.source, KeySource::Issuer(_))));
    if !is_issuer {
        let why = "does not name a rule with jwt.issuerUrl that the policy itself declares";
        return Err(fault(&field, &text, why));
    }
    Ok(UserInfo { identity_source: Some(text.into()), server: None, path: Arc::default(), timeout })
}
