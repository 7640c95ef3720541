//! How results of rules are kept (`cache`).

use std::time::Duration;

use ring::digest;
use serde_json::value::RawValue;

use super::reader::{Place, RuleReader};
use crate::model::auth::{
    AuthCache, Authentication, AuthenticationMethod, Authorization, Denial, HttpRule, Metadata, Success,
};
use crate::object::ObjectRef;
use crate::project::field::{InvalidValue, written};
use crate::project::kuadrant::fields::Fields;
use crate::project::kuadrant::policy::fault;

/// The default of `ttl` in seconds, and its maximum.
const TTL_DEFAULT_S: i64 = 60;
const TTL_MAX_S: i64 = 86_400;

/// The part of a rule that depends on its section.
pub(super) trait RuleAction {
    /// The reason why its result is not kept; `None` if it can be.
    fn uncached(&self) -> Option<&'static str>;
}

const CHEAP: Option<&str> = Some("the rule is evaluated for each request, which costs little");

impl RuleAction for Authentication {
    fn uncached(&self) -> Option<&'static str> {
        match &self.method {
            AuthenticationMethod::Introspection(_) | AuthenticationMethod::TokenReview { .. } => None,
            AuthenticationMethod::Anonymous
            | AuthenticationMethod::Plain(_)
            | AuthenticationMethod::ApiKey(_)
            | AuthenticationMethod::Jwt(_) => CHEAP,
        }
    }
}

impl RuleAction for Metadata {
    fn uncached(&self) -> Option<&'static str> {
        None
    }
}

impl RuleAction for Authorization {
    fn uncached(&self) -> Option<&'static str> {
        match self {
            Self::AccessReview(_) => None,
            Self::Patterns(_) => CHEAP,
        }
    }
}

impl RuleAction for HttpRule {
    fn uncached(&self) -> Option<&'static str> {
        Some("a callback has no result")
    }
}

impl RuleAction for Success {
    fn uncached(&self) -> Option<&'static str> {
        CHEAP
    }
}

impl RuleAction for Denial {
    fn uncached(&self) -> Option<&'static str> {
        CHEAP
    }
}

impl RuleReader<'_> {
    /// Reads `cache` of a rule, which is read already. `raw` is the whole rule.
    pub(super) fn cache(
        &mut self,
        cache: &RawValue,
        field: &str,
        rule: &impl RuleAction,
        place: &Place,
        raw: &RawValue,
    ) -> Result<Option<AuthCache>, InvalidValue> {
        if let Some(why) = rule.uncached() {
            self.findings.without_effect(field, &written(cache), why);
            return Ok(None);
        }
        let mut fields = Fields::read(cache, field)?;
        let key = self.value(fields.required("key")?, &fields.at("key"))?;
        let ttl_s = fields.value("ttl")?.unwrap_or(TTL_DEFAULT_S);
        fields.end()?;
        if ttl_s == 0 {
            self.findings.without_effect(field, &written(cache), "a result is kept for no time");
            return Ok(None);
        }
        let in_range = (1..=TTL_MAX_S).contains(&ttl_s).then_some(ttl_s);
        let ttl = in_range.and_then(|ttl_s| u64::try_from(ttl_s).ok()).ok_or_else(|| {
            let why = format!("is not a number of seconds from 1 to {TTL_MAX_S}");
            fault(&format!("{field}.ttl"), &ttl_s.to_string(), &why)
        })?;
        let digest = digest(self.policy, place, raw);
        Ok(Some(AuthCache { key, ttl: Duration::from_secs(ttl), digest }))
    }
}

/// Identifies a rule as it is written, in its place.
fn digest(policy: &ObjectRef, place: &Place, raw: &RawValue) -> [u8; 16] {
    let mut context = digest::Context::new(&digest::SHA256);
    // The key has the section and the name, which has no control characters.
    for part in [&policy.name.to_string(), &*place.key, raw.get()] {
        context.update(part.as_bytes());
        context.update(&[0]);
    }
    let mut first = [0; 16];
    first.iter_mut().zip(context.finish().as_ref()).for_each(|(to, from)| *to = *from);
    first
}
