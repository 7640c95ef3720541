//! Projections of Kuadrant's policies as text.

use serde_json::Value;
use tidegate_config::project::kuadrant::{AuthPolicy, PolicyTargetRef, RateLimitPolicy, TokenRateLimitPolicy};

use crate::render::line;
use crate::render_gateway::named;

pub(crate) fn rate_limit_policy(out: &mut String, it: &RateLimitPolicy) {
    named(out, "rate limit policy", &it.age);
    target(out, &it.target);
    match &it.limits {
        Ok(block) => {
            line(out, format_args!("{:?} {:?}", block.strategy, block.scope));
            for (name, limit) in &block.entries {
                assert_eq!((name, limit.id.policy().name.clone()), (limit.id.name(), it.age.name.clone()));
                line(out, format_args!("limit {name}{}", if limit.shadow { ", shadow" } else { "" }));
                limit.when.iter().for_each(|when| line(out, format_args!("  when {when}")));
                limit.counters.iter().for_each(|counter| line(out, format_args!("  for each {counter}")));
                limit.rates.iter().for_each(|rate| line(out, format_args!("  {} in {:?}", rate.max, rate.window)));
            }
        }
        Err(why) => line(out, format_args!("no limits: {why}")),
    }
    it.left_out.iter().for_each(|why| line(out, format_args!("left out: {why}")));
}

pub(crate) fn token_rate_limit_policy(out: &mut String, it: &TokenRateLimitPolicy) {
    named(out, "token rate limit policy", &it.age);
    target(out, &it.target);
}

fn target(out: &mut String, it: &Result<PolicyTargetRef, String>) {
    match it {
        Ok(target) => line(out, format_args!("target {target}")),
        Err(why) => line(out, format_args!("no target: {why}")),
    }
}

pub(crate) fn auth_policy(out: &mut String, it: &AuthPolicy) {
    named(out, "auth policy", &it.age);
    target(out, &it.target);
    match &it.rules {
        Ok(block) => {
            line(out, format_args!("{:?} {:?}", block.strategy, block.scope));
            for (key, rule) in &block.entries {
                let id = rule.id();
                assert_eq!(id.policy.name, it.age.name);
                assert!(key.ends_with(&format!("#{}", id.name)) || key.ends_with(&format!(".{}", id.name)), "{key}");
                line(out, format_args!("{key}{}", if id.shadow { ", shadow" } else { "" }));
                auth_rule(out, &serde_json::to_value(&**rule).unwrap());
                it.api_keys.get(key).into_iter().for_each(|labels| line(out, format_args!("  Secrets with {labels}")));
                it.secrets.get(key).into_iter().for_each(|secret| line(out, format_args!("  {secret:?}")));
            }
            assert!(it.api_keys.keys().chain(it.secrets.keys()).all(|key| block.entries.contains_key(key)));
        }
        Err(why) => line(out, format_args!("no rules: {why}")),
    }
    it.unusable.iter().for_each(|why| line(out, format_args!("unusable: {why}")));
}

/// A rule by what it serialises to, without what is the same in all rules of the policy.
fn auth_rule(out: &mut String, entry: &Value) {
    let (form, rule) = entry.as_object().unwrap().iter().next().unwrap();
    if rule["priority"] != 0 {
        line(out, format_args!("  priority {}", rule["priority"]));
    }
    for field in ["policy_when", "when"] {
        rule[field].as_array().unwrap().iter().for_each(|when| line(out, format_args!("  {field} {when}")));
    }
    if !rule["cache"].is_null() {
        line(out, format_args!("  cache {}", rule["cache"]));
    }
    line(out, format_args!("  {form} {}", rule["rule"]));
}
