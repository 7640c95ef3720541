//! The keys that the rules of an AuthPolicy accept at present: API keys in Secrets, and keys of issuers of tokens.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tidegate_config::finding::{Finding, Problem};
use tidegate_config::model::auth::{
    ApiKeyHash, ApiKeys, AuthEntry, AuthRule, Authentication, AuthenticationMethod, Jwt, KeySet, KeySource,
};
use tidegate_config::object::{Kind, ObjectName, ObjectRef};
use tidegate_config::project::ApiKeySecret;
use tidegate_config::project::gateway::LabelSelector;
use tidegate_config::project::kuadrant::AuthPolicy;

use crate::attachment::{AttachedPolicy, Key};
use crate::options::Secrets;
use crate::sources::reader::Reader;
use crate::world::KEY_SOURCES_MAX;

/// The maximum number of Secrets without effect that one rule tells of.
const TOLD_MAX: usize = 16;

/// Fills the keys into the rules of a policy. The findings are about Secrets whose keys are not used.
pub(super) fn with_keys(reader: &mut Reader<'_>, policy: &Arc<AuthPolicy>) -> (Arc<AuthPolicy>, Vec<Finding>) {
    let Ok(block) = &policy.rules else { return (Arc::clone(policy), Vec::new()) };
    let own = ObjectRef::new(Kind::AuthPolicy, policy.age.name.clone());
    let mut filled: BTreeMap<Arc<str>, Arc<AuthEntry>> = BTreeMap::new();
    let mut findings = Vec::new();
    let mut unusable = policy.unusable.to_vec();
    for (key, entry) in &block.entries {
        let AuthEntry::Authentication(rule) = &**entry else { continue };
        let (method, field) = match &rule.rule.method {
            AuthenticationMethod::ApiKey(_) => {
                let field = field_of(key, "apiKey");
                let keys = api_keys(reader, &own, policy.api_keys.get(key), &field).map_err(str::to_owned);
                let keys = keys.map(|(keys, told)| {
                    findings.extend(told);
                    AuthenticationMethod::ApiKey(shared(reader, &own, key, keys))
                });
                (keys, field)
            }
            AuthenticationMethod::Jwt(jwt) => {
                let field = field_of(key, "jwt");
                let keys = key_set(reader, &own.name.namespace, &jwt.source).map(|(keys, fault)| {
                    if let Some(fault) = fault {
                        let why = format!("it accepts no token, because its keys cannot be fetched: {fault}");
                        let problem = Problem::WithoutEffect { value: jwt.source.url().to_string(), why };
                        findings.push(Finding::new(own.clone(), field.clone(), problem));
                    }
                    AuthenticationMethod::Jwt(Jwt { keys, ..jwt.clone() })
                });
                (keys, field)
            }
            AuthenticationMethod::Anonymous
            | AuthenticationMethod::Plain(_)
            | AuthenticationMethod::Introspection(_)
            | AuthenticationMethod::TokenReview { .. } => continue,
        };
        let method = match method {
            Ok(method) => method,
            Err(why) => {
                let problem = Problem::AccessClosed { value: rule.name.to_string(), why: why.clone() };
                findings.push(Finding::new(own.clone(), field.clone(), problem));
                unusable.push(format!("{field}: {:?} {why}", rule.name));
                filled.insert(Arc::clone(key), Arc::new(entry.unusable(format!("{field} {why}"))));
                continue;
            }
        };
        let rule: AuthRule<Authentication> =
            AuthRule { rule: Authentication { method, ..rule.rule.clone() }, ..AuthRule::clone(rule) };
        filled.insert(Arc::clone(key), Arc::new(AuthEntry::Authentication(Arc::new(rule))));
    }
    if filled.is_empty() {
        return (Arc::clone(policy), findings);
    }
    let mut policy = AuthPolicy::clone(policy);
    policy.unusable = unusable.into();
    policy.rules.iter_mut().for_each(|block| block.entries.extend(std::mem::take(&mut filled)));
    (Arc::new(policy), findings)
}

/// The field of the method of a rule, without the block of its policy.
fn field_of(key: &str, method: &str) -> String {
    format!("rules.{}].{method}", key.replacen('#', "[", 1))
}

/// The keys in the Secrets of a policy's namespace with these labels. Of several Secrets with one key the oldest one
/// counts.
///
/// # Errors
/// Why there can be none, as a predicate.
fn api_keys(
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
fn shared(reader: &Reader<'_>, policy: &ObjectRef, rule: &str, keys: ApiKeys) -> Arc<ApiKeys> {
    let claims = reader.topology().get(policy).map_or(&[][..], |before| &before.other_claims().policies);
    let rules = claims.iter().filter_map(|claim| match &claim.attached {
        AttachedPolicy::Auth(read) => read.rules.as_ref().ok()?.entries.get(rule),
        AttachedPolicy::RateLimit(_) | AttachedPolicy::NotServed | AttachedPolicy::Unusable => None,
    });
    let mut before = rules.filter_map(|entry| match &**entry {
        AuthEntry::Authentication(rule) => match &rule.rule.method {
            AuthenticationMethod::ApiKey(keys) => Some(keys),
            AuthenticationMethod::Introspection(_)
            | AuthenticationMethod::TokenReview { .. }
            | AuthenticationMethod::Anonymous
            | AuthenticationMethod::Plain(_)
            | AuthenticationMethod::Jwt(_) => None,
        },
        AuthEntry::Metadata(_)
        | AuthEntry::Callback(_)
        | AuthEntry::Authorization(_)
        | AuthEntry::Success(_)
        | AuthEntry::Unauthenticated(_)
        | AuthEntry::Unauthorized(_)
        | AuthEntry::Unusable(_) => None,
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
fn key_set<'w>(
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
