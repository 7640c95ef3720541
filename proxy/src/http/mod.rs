//! Rules of HTTP/1.1 messages that both drivers follow: framing of bodies, header names, edits of heads, and
//! compression.

pub(crate) mod body;
pub(crate) mod cdn_loop;
pub(crate) mod compression;
pub(crate) mod date;
pub(crate) mod edited;
pub(crate) mod edits;
pub(crate) mod gzip;
pub(crate) mod names;
pub(crate) mod request_framing;
pub(crate) mod response;
pub(crate) mod spans;
pub(crate) mod weight;
