//! The drivers of requests: [`serve()`] waits for the head of each and hands it to the native driver, or to Pingora's
//! if that one does not take it. [`streams`] does the same with the streams of HTTP/2.

mod client_stream;
pub(crate) mod native;
mod open;
pub(crate) mod pingora;
mod serve;
mod streams;
mod traffic;

pub(crate) use open::{Accepted, ConnectionOrigin, ConnectionState, open};
pub(crate) use serve::{TlsBytes, serve};
pub(crate) use streams::Streams;
pub(crate) use traffic::{HeadBounds, Traffic};
