//! Rules of HTTP/1.1 messages that both drivers follow: how a body is framed, what a response may say of its own, the names of
//! headers, how heads are edited, and when and how bodies are compressed.

pub(crate) mod body;
pub(crate) mod compression;
pub(crate) mod date;
pub(crate) mod edited;
pub(crate) mod edits;
pub(crate) mod gzip;
pub(crate) mod names;
pub(crate) mod response;
pub(crate) mod spans;
