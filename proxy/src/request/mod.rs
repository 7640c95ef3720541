//! The steps of a request, each a plain function over a read-only view of its head that returns its decision as data,
//! and the types of the states of a request, which call them: a [`phase::Routed`] one is [`decide`]d upon, and then
//! goes to an endpoint ([`forwarding`]) or is answered here ([`exchange`]). None uses sessions of drivers.

pub(crate) mod local_reply;
pub(crate) mod client;
pub(crate) mod client_url;
pub(crate) mod decide;
pub(crate) mod exchange;
pub(crate) mod reply_format;
pub(crate) mod forwarding;
pub(crate) mod grpc;
pub(crate) mod policy;
pub(crate) mod validate;
mod mirror;
mod outcome;
mod path_rewrite;
mod persistence;
pub(crate) mod phase;
pub(crate) mod request_id;
pub(crate) mod respond;
mod rewrite;
mod route;
