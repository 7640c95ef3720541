//! Requests and responses: from an HTTP request to a read or a write of the store, and back.

pub(crate) mod answer;
mod body;
mod cells;
mod columns;
mod discovery;
mod events;
mod expected;
mod form;
mod logs;
mod openapi;
mod openapi_v2;
mod page;
mod path;
mod forward_writes;
mod protobuf;
mod query;
mod read;
mod review;
mod route;
mod schemas;
mod service;
mod table;
mod watch;
mod writes;

pub use self::body::LiteBody;
pub use self::forward_writes::{ForwardError, WriteForwarder};
pub use self::service::LiteService;
