//! Rules of HTTP/1.1 messages that both drivers follow: how a body is framed, and what a response may say of its own.

pub(crate) mod body;
pub(crate) mod response;
