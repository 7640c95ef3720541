//! Authorisation rules.

use serde_json::value::RawValue;

use super::call::texts;
use super::reader::{Place, RuleReader, unsupported};
use crate::model::auth::{AccessAttributes, AccessReviewRule, Authorization};
use crate::project::field::{FindingList, InvalidValue, written};
use crate::project::kuadrant::fields::Fields;
use crate::project::kuadrant::policy::fault;

impl RuleReader<'_> {
    pub(super) fn authorization(&mut self, fields: &mut Fields<'_>, _: &Place) -> Result<Authorization, InvalidValue> {
        let (method, raw) = fields.one_of(&["patternMatching", "opa", "kubernetesSubjectAccessReview", "spicedb"])?;
        let field = fields.at(method);
        match method {
            "patternMatching" => {
                let mut fields = Fields::read(raw, &field)?;
                let patterns = fields.required::<&RawValue>("patterns")?;
                let patterns = self.conditions(Some(patterns), &fields.at("patterns"))?;
                fields.end()?;
                Ok(Authorization::Patterns(patterns.into()))
            }
            "kubernetesSubjectAccessReview" => {
                Ok(Authorization::AccessReview(Box::new(self.access_review(raw, &field)?)))
            }
            _ => Err(unsupported(&field, raw)),
        }
    }

    fn access_review(&mut self, raw: &RawValue, field: &str) -> Result<AccessReviewRule, InvalidValue> {
        let mut fields = Fields::read(raw, field)?;
        let user = self.optional(&mut fields, "user")?;
        let groups = texts(&mut fields, "groups")?;
        let authorization_groups = self.optional(&mut fields, "authorizationGroups")?;
        if user.is_none() && groups.is_empty() && authorization_groups.is_none() {
            let why = "is about nobody: it needs user, groups or authorizationGroups";
            return Err(fault(field, &written(raw), why));
        }
        let resource = fields.take("resourceAttributes").map(|raw| {
            let mut fields = Fields::read(raw, &fields.at("resourceAttributes"))?;
            let attributes = AccessAttributes {
                group: self.optional(&mut fields, "group")?,
                resource: self.optional(&mut fields, "resource")?,
                subresource: self.optional(&mut fields, "subresource")?,
                name: self.optional(&mut fields, "name")?,
                namespace: self.optional(&mut fields, "namespace")?,
                verb: self.optional(&mut fields, "verb")?,
            };
            fields.end()?;
            Ok(attributes)
        });
        let resource = resource.transpose()?;
        review_timeout(&mut fields, self.findings)?;
        fields.end()?;
        Ok(AccessReviewRule { user, groups, authorization_groups, resource })
    }
}

/// `timeout` of a review has no effect.
pub(super) fn review_timeout(fields: &mut Fields<'_>, findings: &mut FindingList) -> Result<(), InvalidValue> {
    if let Some(number) = fields.value::<i64>("timeout")?.filter(|number| *number != 0) {
        let why = "reviews have the edge's own limit of time";
        findings.without_effect(&fields.at("timeout"), &format!("{number} ms"), why);
    }
    Ok(())
}
