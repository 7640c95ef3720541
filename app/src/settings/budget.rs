//! The shares of traffic resources that one client and one Service may take.

use tidegate_proxy::BudgetLimits;

use super::InvalidValue;
use super::pace::within;
use crate::args::LimitArgs;

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
