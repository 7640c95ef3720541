//! The steps of a request, each a plain function over a read-only view of its head that returns its decision as data,
//! the [`phase`]s composed of them, and the [`exchange`] with the state of one request. They do not use sessions of
//! drivers, and no step calls the next one.

pub(crate) mod answer;
pub(crate) mod client;
mod cors;
pub(crate) mod exchange;
pub(crate) mod external_auth;
pub(crate) mod form;
pub(crate) mod grpc;
pub(crate) mod guard;
pub(crate) mod hygiene;
mod mirror;
mod outcome;
mod path_rewrite;
mod persistence;
pub(crate) mod phase;
pub(crate) mod request_id;
pub(crate) mod respond;
mod rewrite;
mod route;
