//! Projections of Kuadrant's policies as text.

use tidegate_config::project::kuadrant::RateLimitPolicy;

use crate::render::line;
use crate::render_gateway::named;

pub(crate) fn rate_limit_policy(out: &mut String, it: &RateLimitPolicy) {
    named(out, "rate limit policy", &it.age);
    match &it.target {
        Ok(target) => line(out, format_args!("target {target}")),
        Err(why) => line(out, format_args!("no target: {why}")),
    }
    match &it.limits {
        Ok(block) => {
            line(out, format_args!("{:?} {:?}", block.strategy, block.scope));
            for (name, limit) in &block.entries {
                assert_eq!((name, limit.policy.name.clone()), (&limit.name, it.age.name.clone()));
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
