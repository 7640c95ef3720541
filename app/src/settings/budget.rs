//! The shares of traffic resources that one client, one Service and one rate limit may take.

use tidegate_proxy::{BudgetLimits, CounterLimits};

use super::InvalidValue;
use super::pace::within;
use crate::args::LimitArgs;

/// The largest number of counters: some 10 GiB.
const COUNTERS_MAX: usize = 100_000_000;

pub(super) fn read(args: &LimitArgs) -> Result<BudgetLimits, InvalidValue> {
    let count = |flag, text| within(flag, text, 0..=u32::MAX);
    Ok(BudgetLimits {
        client_connections: count("--client-connections-max", &args.client_connections_max)?,
        client_requests: count("--client-requests-max", &args.client_requests_max)?,
        client_share: within("--client-share-max", &args.client_share_max, 1..=100)?,
        service_requests: count("--service-requests-max", &args.service_requests_max)?,
        ..BudgetLimits::default()
    })
}

/// The counters of rate limits.
pub(super) fn counters(args: &LimitArgs) -> Result<CounterLimits, InvalidValue> {
    let count = |flag, text| within(flag, text, 1..=COUNTERS_MAX);
    Ok(CounterLimits {
        limit_counters_max: count("--limit-counters-max", &args.limit_counters_max)?,
        counters_max: count("--counters-max", &args.counters_max)?,
    })
}
