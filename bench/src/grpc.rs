//! The part of gRPC that streams of small messages need, over HTTP/2 alone: its requests and trailers, and its framing.

mod call;
mod echo;
mod held;

use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::HeaderMap;

pub(crate) use echo::echo;
pub(crate) use held::{Held, Seen};

/// The media type of requests and answers.
const CONTENT_TYPE: &str = "application/grpc";
/// The path of the method.
pub(crate) const PATH: &str = "/bench.Echo/Stream";
/// The prefix of every message: one byte for compression, and four bytes for its length.
const PREFIX_BYTES: usize = 5;
/// The length of the messages here, which are numbers.
const MESSAGE_BYTES: u32 = u64::BITS / 8;
/// The maximum time to wait for an echo, or for anything else.
const PATIENCE: Duration = Duration::from_secs(5);

/// The message that holds a number.
fn framed(number: u64) -> Bytes {
    let mut frame = BytesMut::with_capacity(PREFIX_BYTES + size_of::<u64>());
    frame.put_u8(0);
    frame.put_u32(MESSAGE_BYTES);
    frame.put_u64(number);
    frame.freeze()
}

/// Takes the next message from the buffer, once it is complete.
///
/// # Errors
/// When it is not a message of [`framed`].
fn unframed(bytes: &mut BytesMut) -> anyhow::Result<Option<u64>> {
    let Some((mut prefix, mut message)) = bytes.split_at_checked(PREFIX_BYTES) else { return Ok(None) };
    let (compressed, length) = (prefix.get_u8(), prefix.get_u32());
    ensure!(compressed == 0 && length == MESSAGE_BYTES, "a message of {length} bytes, flag {compressed}");
    if message.len() < size_of::<u64>() {
        return Ok(None);
    }
    let number = message.get_u64();
    bytes.advance(PREFIX_BYTES + size_of::<u64>());
    Ok(Some(number))
}

/// Checks the status of an ended call in its trailers, or in the head of a response without a body.
///
/// # Errors
/// When the call ended with an error.
fn ended_well(trailers: &HeaderMap) -> anyhow::Result<()> {
    let text = |name| trailers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let status = text("grpc-status").context("it ended without a grpc-status")?;
    ensure!(status == "0", "grpc-status {status}: {}", text("grpc-message").unwrap_or_default());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], want: Result<&[u64], &str>) {
        let (mut bytes, mut got) = (BytesMut::from(bytes), Vec::new());
        let end = loop {
            match unframed(&mut bytes) {
                Ok(Some(number)) => got.push(number),
                Ok(None) => break Ok(got.as_slice()),
                Err(why) => break Err(why.to_string()),
            }
        };
        assert_eq!(end, want.map_err(str::to_owned));
    }

    #[test]
    fn messages_are_parsed_from_partial_input() {
        let three = [framed(7), framed(8), framed(u64::MAX)].concat();
        check(&three, Ok(&[7, 8, u64::MAX]));
        check(&three[..three.len() - 1], Ok(&[7, 8]));
        check(&three[..PREFIX_BYTES - 1], Ok(&[]));
        check(b"\x00\x00\x00\x00\x09.........", Err("a message of 9 bytes, flag 0"));
        check(b"\x01\x00\x00\x00\x08........", Err("a message of 8 bytes, flag 1"));
    }

    #[track_caller]
    fn check_end(trailers: &[(&'static str, &'static str)], want: Result<(), &str>) {
        let trailers = trailers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        assert_eq!(ended_well(&trailers).map_err(|why| why.to_string()), want.map_err(str::to_owned));
    }

    #[test]
    fn only_status_0_is_success() {
        check_end(&[("grpc-status", "0")], Ok(()));
        check_end(&[("grpc-status", "14"), ("grpc-message", "gone")], Err("grpc-status 14: gone"));
        check_end(&[], Err("it ended without a grpc-status"));
    }
}
