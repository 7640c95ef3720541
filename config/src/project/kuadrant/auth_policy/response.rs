//! Answers to refused requests, and what allowed requests are given.

use std::borrow::Cow;
use std::sync::Arc;

use http::HeaderName;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::reader::{Place, RuleReader, unsupported};
use super::value::{check_length, header};
use crate::model::auth::{AuthEntry, AuthValue, Denial, Success, SuccessForm, SuccessTarget};
use crate::project::field::InvalidValue;
use crate::project::kuadrant::fields::Fields;
use crate::project::kuadrant::policy::fault;

impl RuleReader<'_> {
    pub(super) fn response(&mut self, mut fields: Fields<'_>) -> Result<(), InvalidValue> {
        let denials =
            [("unauthenticated", AuthEntry::Unauthenticated as fn(_) -> _), ("unauthorized", AuthEntry::Unauthorized)];
        for (name, entry) in denials {
            if let Some(raw) = fields.take(name) {
                let key = format!("response.{name}").into();
                let place = Place { key, name: name.into(), field: fields.at(name), header: None };
                self.rule(&place, raw, Self::denial, entry);
            }
        }
        if let Some(raw) = fields.take("success") {
            let mut success = Fields::read(raw, &fields.at("success"))?;
            let section = (success.take("headers"), success.at("headers"));
            self.section("response.success.headers", section, |reader, place, raw| {
                let place = Place { header: made_header(raw, &place.name), ..place };
                reader.rule(&place, raw, Self::success_header, AuthEntry::Success);
            })?;
            let section = (success.take("filters"), success.at("filters"));
            self.section("response.success.filters", section, |reader, place, raw| {
                reader.rule(&place, raw, Self::success_filter, AuthEntry::Success);
            })?;
            success.end()?;
        }
        fields.end()
    }

    fn denial(&mut self, fields: &mut Fields<'_>, _: &Place) -> Result<Denial, InvalidValue> {
        let status = fields.value::<i64>("code")?.filter(|code| *code != 0);
        let status = status.map(|code| {
            let status = u16::try_from(code).ok().filter(|status| (300..=599).contains(status));
            status.ok_or_else(|| fault(&fields.at("code"), &code.to_string(), "is not a status from 300 to 599"))
        });
        let headers = fields.take("headers");
        Ok(Denial {
            status: status.transpose()?,
            message: self.optional(fields, "message")?,
            headers: self.headers(headers, &fields.at("headers"))?,
            body: self.optional(fields, "body")?,
        })
    }

    pub(super) fn optional(&mut self, fields: &mut Fields<'_>, name: &str) -> Result<Option<AuthValue>, InvalidValue> {
        let raw = fields.take(name);
        raw.map(|raw| self.value(raw, &fields.at(name))).transpose()
    }

    fn success_header(&mut self, fields: &mut Fields<'_>, place: &Place) -> Result<Success, InvalidValue> {
        let (name, field) = output(fields, place)?;
        let name: HeaderName = header(&name, &field)?;
        self.success(fields, SuccessTarget::Header(name))
    }

    fn success_filter(&mut self, fields: &mut Fields<'_>, place: &Place) -> Result<Success, InvalidValue> {
        let (name, field) = output(fields, place)?;
        check_length(&name, &field)?;
        self.success(fields, SuccessTarget::Filter(name))
    }

    fn success(&mut self, fields: &mut Fields<'_>, target: SuccessTarget) -> Result<Success, InvalidValue> {
        let (form, raw) = fields.one_of(&["plain", "json", "wristband"])?;
        let field = fields.at(form);
        let form = match form {
            "plain" => SuccessForm::Plain(self.value(raw, &field)?),
            "json" => {
                let mut fields = Fields::read(raw, &field)?;
                let properties = fields.required::<&RawValue>("properties")?;
                let properties = self.properties(Some(properties), &fields.at("properties"))?;
                fields.end()?;
                SuccessForm::Json(properties)
            }
            _ => return Err(unsupported(&field, raw)),
        };
        Ok(Success { target, form })
    }
}

/// The header that a rule makes, even if the rule cannot be used; `None` if it could not make one either way.
fn made_header(raw: &RawValue, name: &str) -> Option<HeaderName> {
    #[derive(Deserialize)]
    struct Keyed<'a> {
        #[serde(borrow)]
        key: Cow<'a, str>,
    }
    let key = serde_json::from_str(raw.get()).map(|Keyed { key }| key).ok().filter(|key| !key.is_empty());
    header(key.as_deref().unwrap_or(name), "").ok()
}

/// The name of the output of a success rule: `key`, or that of the rule.
fn output(fields: &mut Fields<'_>, place: &Place) -> Result<(Arc<str>, String), InvalidValue> {
    let key = fields.value::<Arc<str>>("key")?.filter(|key| !key.is_empty());
    Ok(key.map_or_else(|| (Arc::clone(&place.name), place.field.clone()), |key| (key, fields.at("key"))))
}
