//! The limits for slow clients.

use tidegate_proxy::{Enforce, RateLimits};

use super::{InvalidValue, pace, time};
use crate::args::ClientArgs;

pub(super) fn read(args: &ClientArgs) -> Result<RateLimits, InvalidValue> {
    let enforce = match &*args.slow_clients {
        "under-pressure" => Enforce::UnderPressure,
        "close" => Enforce::Always,
        "keep" => Enforce::Never,
        other => return Err(InvalidValue::new("--slow-clients", other, "is neither under-pressure, close nor keep")),
    };
    Ok(RateLimits {
        bytes_per_second: pace::within("--min-rate", &args.min_rate, 1..=1_000_000_000)?,
        grace: time("--min-rate-grace", &args.min_rate_grace)?,
        enforce,
    })
}
