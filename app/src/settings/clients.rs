//! The limits for slow and idle clients.

use std::time::Duration;

use tidegate_proxy::{Enforce, RateLimits};

use super::{InvalidValue, pace, time};
use crate::args::ClientArgs;

/// The idle timeouts between two requests of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IdleTimeouts {
    /// Of any client, over HTTP/1.1.
    pub(crate) client: Duration,
    /// Of a trusted proxy, if it is longer.
    pub(crate) proxy: Duration,
}

pub(super) fn read_idle(args: &ClientArgs) -> Result<IdleTimeouts, InvalidValue> {
    Ok(IdleTimeouts {
        client: time("--idle-timeout", &args.idle_timeout)?,
        proxy: time("--proxy-idle-timeout", &args.proxy_idle_timeout)?,
    })
}

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
