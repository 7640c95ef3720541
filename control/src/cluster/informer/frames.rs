//! Splits the body of a watch into its frames: one JSON object in each line. Pure, with a size limit.

use bytes::{Buf, Bytes, BytesMut};

/// A line exceeds the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TooLong;

/// The received part of a watch that is not yet processed.
///
/// A last line without a line end is never returned: it may be an incomplete event, and the next watch starts before
/// it.
#[derive(Debug)]
pub(super) struct Frames {
    buffer: BytesMut,
    /// The length of the prefix known to contain no line end.
    scanned: usize,
    bytes_max: usize,
}

impl Frames {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { buffer: BytesMut::new(), scanned: 0, bytes_max }
    }

    /// Whether no incomplete line is buffered.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next complete line that is not blank, without its end.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        while let Some(at) = self.buffer[self.scanned..].iter().position(|byte| *byte == b'\n') {
            let mut line = self.buffer.split_to(self.scanned + at).freeze();
            self.buffer.advance(1);
            self.scanned = 0;
            if line.len() > self.bytes_max {
                return Err(TooLong);
            }
            if line.ends_with(b"\r") {
                line.truncate(line.len() - 1);
            }
            if !line.is_empty() {
                return Ok(Some(line));
            }
        }
        self.scanned = self.buffer.len();
        if self.scanned > self.bytes_max { Err(TooLong) } else { Ok(None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes the chunks one by one and takes all lines after each; an `Err` ends it as in a watch.
    #[track_caller]
    fn check(chunks: &[&str], expected: &[&str], too_long: bool) {
        let mut frames = Frames::new(8);
        let mut got = Vec::new();
        let mut failed = false;
        'all: for chunk in chunks {
            frames.push(chunk.as_bytes());
            loop {
                match frames.next() {
                    Ok(Some(line)) => got.push(String::from_utf8(line.to_vec()).unwrap()),
                    Ok(None) => break,
                    Err(TooLong) => {
                        failed = true;
                        break 'all;
                    }
                }
            }
        }
        assert_eq!(got, expected);
        assert_eq!(failed, too_long);
    }

    #[test]
    fn lines_may_span_chunks() {
        check(&["a\nb\n"], &["a", "b"], false);
        check(&["a", "", "b", "\nc", "\n"], &["ab", "c"], false);
        check(&["a\r\n\n\r\nb\n"], &["a", "b"], false);
        check(&["ab", "\r", "\n"], &["ab"], false);
    }

    #[test]
    fn an_unfinished_line_is_held_back() {
        check(&["a\nhalf"], &["a"], false);
        check(&[], &[], false);
    }

    #[test]
    fn the_limit_applies_to_complete_and_unfinished_lines() {
        check(&["12345678\n"], &["12345678"], false);
        check(&["123456789\n"], &[], true);
        check(&["a\n1234", "56789"], &["a"], true);
        check(&["12345678", "\nnext\n"], &["12345678", "next"], false);
    }
}
