//! The keys that the rules of an AuthPolicy accept at present: API keys in Secrets, and keys of issuers of tokens.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::auth::{ApiKeyHash, ApiKeys, AuthenticationMethod, KeySet, KeySource};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::ApiKeySecret;
use tidegate_config::project::gateway::LabelSelector;

use crate::attachment::{AttachedPolicy, Key};
use crate::options::Secrets;
use crate::sources::reader::Reader;
use crate::world::KEY_SOURCES_MAX;

/// The maximum number of Secrets without effect that one rule tells of.
const TOLD_MAX: usize = 16;

/// The keys in the Secrets of a policy's namespace with these labels. Of several Secrets with one key the oldest one
/// counts.
///
/// # Errors
/// Why there can be none, as a predicate.
pub(super) fn api_keys(
    reader: &mut Reader<'_>,
    policy: &ObjectRef,
    selector: Option<&LabelSelector>,
    field: &str,
) -> Result<(ApiKeys, Vec<Finding>), &'static str> {
    if reader.options.secrets != Secrets::Watched {
        return Err("needs Secrets by their labels, and --secrets reads them by their names only");
    }
    let selector = selector.ok_or("has no selector")?;
    let namespace = &policy.name.namespace;
    Key::selected(Kind::Secret, namespace, selector).for_each(|key| reader.note(key));
    let selected = secrets(reader, namespace).filter(|(_, secret)| selector.selects(&secret.labels));
    let mut by_age: Vec<(&ObjectName, &ApiKeySecret)> = selected.collect();
    by_age.sort_by_key(|(name, secret)| (secret.created_s, *name));
    let mut keys = ApiKeys::default();
    let mut owners: HashMap<&ApiKeyHash, &ObjectName> = HashMap::new();
    let mut unused: Vec<(&ObjectName, String)> = Vec::new();
    for (name, secret) in by_age {
        unused.push((
            name,
            match &secret.key {
                Ok(hash) => match owners.get(hash) {
                    None => {
                        owners.insert(hash, name);
                        keys.0.insert(*hash, Arc::clone(&secret.identity));
                        continue;
                    }
                    Some(older) => format!("its key is that of {} {older}, which is older", Kind::Secret),
                },
                Err(why) => (*why).to_owned(),
            },
        ));
    }
    let more = unused.len().saturating_sub(TOLD_MAX);
    let told = unused.into_iter().take(TOLD_MAX).map(|(name, why)| (format!("{} {name}", Kind::Secret), why));
    let rest = (more > 0).then(|| (format!("{more} more Secrets"), "their keys are not used".to_owned()));
    let finding = |(value, why)| Finding::new(policy.clone(), field, Problem::WithoutEffect { value, why });
    Ok((keys, told.chain(rest).map(finding).collect()))
}

/// Keys as the same value as before if they are equal, so that no later step compares them.
pub(super) fn shared(reader: &Reader<'_>, policy: &ObjectRef, rule: &str, keys: ApiKeys) -> Arc<ApiKeys> {
    let claims = reader.topology().get(policy).map_or(&[][..], |before| &before.other_claims().policies);
    let rules = claims.iter().filter_map(|claim| match &claim.attached {
        AttachedPolicy::Auth(read) => read.rules.as_ref().ok()?.entries.get(rule),
        AttachedPolicy::RateLimit(_) | AttachedPolicy::NotServed | AttachedPolicy::Unusable => None,
    });
    let methods = rules.filter_map(|entry| entry.authentication()).map(|rule| &rule.rule.method);
    let mut before = methods.filter_map(|method| match method {
        AuthenticationMethod::ApiKey(keys) => Some(keys),
        AuthenticationMethod::Anonymous
        | AuthenticationMethod::Plain(_)
        | AuthenticationMethod::Jwt(_)
        | AuthenticationMethod::Introspection(_)
        | AuthenticationMethod::TokenReview { .. } => None,
    });
    before.find(|before| ***before == keys).map_or_else(|| Arc::new(keys), Arc::clone)
}

/// The Secrets of a namespace that have an API key.
fn secrets<'w>(reader: &Reader<'w>, namespace: &Arc<str>) -> impl Iterator<Item = (&'w ObjectName, &'w ApiKeySecret)> {
    let first = ObjectName::new(Arc::clone(namespace), "");
    let namespace = Arc::clone(namespace);
    let all = reader.world().secrets.range(first..).take_while(move |(name, _)| name.namespace == namespace);
    all.filter_map(|(name, secret)| Some((name, &**secret.api_key.as_ref()?)))
}

/// The keys of an issuer, or why they cannot be fetched. Neither before the first fetch has ended.
///
/// # Errors
/// Why they are not fetched, as a predicate.
pub(super) fn key_set<'w>(
    reader: &mut Reader<'w>,
    namespace: &str,
    source: &KeySource,
) -> Result<(Option<Arc<KeySet>>, Option<&'w str>), String> {
    if !reader.world().admits_key_source(namespace, source) {
        return Err(format!(
            "needs keys beyond the limit of {KEY_SOURCES_MAX} issuers and key sets of a namespace, of which the oldest \
             policies have theirs"
        ));
    }
    reader.note(Key::KeySet(Box::new(source.clone())));
    let Some(fetched) = reader.world().key_sets.get(source) else { return Ok((None, None)) };
    let fault = fetched.fault.as_deref().filter(|_| fetched.keys.is_none());
    Ok((fetched.keys.clone(), fault))
}
