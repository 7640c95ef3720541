//! The Pingora driver, for all requests that the native one does not take. Only this folder uses Pingora's `Session`.

pub(crate) mod asking;
mod body_rates;
mod context;
mod compress;
mod endpoint_socket;
mod failed;
pub(crate) mod fault;
pub(crate) mod head;
mod head_guard;
mod http2;
mod peer;
mod proxy_http;
mod sent_request;
mod session;
mod stream_traits;

use std::sync::Arc;

use pingora::proxy::{HttpProxy, http_proxy};
use pingora::server::configuration::ServerConf;
use tidegate_config::published::Published;

pub(crate) use proxy_http::PingoraDriver;

use crate::shared::Shared;

/// Pingora's proxy with a connection pool of its own.
pub(crate) fn proxy(published: Published, shared: Arc<Shared>) -> HttpProxy<PingoraDriver> {
    let limits = &shared.options.upstream;
    let conf = ServerConf {
        threads: 1,
        upstream_keepalive_pool_size: limits.pool_size,
        // Pingora counts the first attempt as well.
        max_retries: limits.tries_max,
        ..ServerConf::default()
    };
    http_proxy(&Arc::new(conf), PingoraDriver::new(published, shared))
}
