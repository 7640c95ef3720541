//! The grammar check of a chunked body that passes through, which also finds its end: of requests in both drivers, and
//! of responses in the Pingora driver. Pingora accepts chunk sizes without digits, any bytes after them, and trailers
//! of 64 KiB; another parser may read another body from those bytes, and a smuggled message after it.

use std::io;

use tokio::io::ReadBuf;

use crate::http::body::{Body, Framing, Malformed, Piece};

/// Parses the bytes that a driver reads, or writes.
#[derive(Clone, Debug)]
pub(crate) struct Chunks {
    /// Bytes of the head that have not passed yet.
    head: usize,
    body: Body,
    /// The beginning of an incomplete line.
    line: Vec<u8>,
    broken: bool,
    /// Whether bytes after the body have passed.
    has_more: bool,
}

impl Chunks {
    /// For a body after a head of `head` bytes.
    pub(crate) const fn behind(head: usize) -> Self {
        Self { head, body: Body::new(Framing::Chunked), line: Vec::new(), broken: false, has_more: false }
    }

    /// Checks whether bytes may pass.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] after a violation of the grammar.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.broken { Err(io::ErrorKind::InvalidData.into()) } else { Ok(()) }
    }

    /// Lets the bytes after the first `before` bytes of a buffer pass, as far as they follow the grammar.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if none of them do.
    pub(crate) fn pass(&mut self, buf: &mut ReadBuf<'_>, before: usize) -> io::Result<()> {
        let passed = self.passing(&buf.filled()[before..])?;
        buf.set_filled(before + passed);
        Ok(())
    }

    /// The number of the next bytes that pass: all that follow the grammar, and those after the body, which are not
    /// checked.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if none of them pass.
    pub(crate) fn passing(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let own = self.own(bytes)?;
        if !self.is_over() {
            return Ok(own);
        }
        self.has_more |= own < bytes.len();
        Ok(bytes.len())
    }

    /// Parses the next bytes. Returns how many of them belong to the head and the body and follow the grammar.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if none do.
    pub(crate) fn own(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.see(bytes) {
            0 => self.check().map(|()| 0),
            own => Ok(own),
        }
    }

    /// Returns `true` at the end of the body.
    pub(crate) const fn is_over(&self) -> bool {
        self.head == 0 && self.body.is_over()
    }

    /// Returns `true` at the end of the body if nothing after it has passed.
    pub(crate) const fn is_whole(&self) -> bool {
        self.is_over() && !self.has_more
    }

    fn see(&mut self, bytes: &[u8]) -> usize {
        let head = self.head.min(bytes.len());
        self.head -= head;
        let mut seen = head;
        while seen < bytes.len() && !self.body.is_over() {
            let rest = &bytes[seen..];
            match if self.line.is_empty() { self.whole(rest) } else { self.piecemeal(rest) } {
                Ok(taken) => seen += taken,
                Err(Malformed) => {
                    self.broken = true;
                    return seen;
                }
            }
        }
        seen
    }

    /// Parses a complete piece and returns its length in bytes.
    fn whole(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        Ok(match self.body.next(bytes)? {
            Piece::Content(count) => {
                self.body.took(count);
                count
            }
            Piece::Framing(count, then) => {
                self.body = then;
                count
            }
            Piece::Unknown | Piece::End => {
                self.line.extend_from_slice(bytes);
                bytes.len()
            }
        })
    }

    /// Adds a byte to an incomplete line.
    fn piecemeal(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        self.line.extend_from_slice(&bytes[..1]);
        if let Piece::Framing(_, then) = self.body.next(&self.line)? {
            self.body = then;
            self.line.clear();
        }
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the length of the body in `came`; `None` if it violates the grammar.
    #[track_caller]
    fn check(came: &str, want: Option<usize>) {
        let bytes = format!("head{came}").into_bytes();
        for step in 1..=bytes.len() {
            let mut chunks = Chunks::behind(4);
            let mut own = 0;
            for piece in bytes.chunks(step) {
                own += chunks.see(piece);
                if chunks.broken {
                    break;
                }
            }
            let body = own.checked_sub(4).expect("the head always passes");
            assert_eq!(chunks.is_over().then_some(body), want, "{came:?} in steps of {step}");
            assert_eq!(chunks.broken, want.is_none(), "{came:?} in steps of {step}");
        }
    }

    #[test]
    fn valid_chunks_pass_and_bytes_after_the_body_are_ignored() {
        check("5\r\nhello\r\n0\r\n\r\n", Some(15));
        check("5\r\nhello\r\n0\r\n\r\n\r\n\nnext", Some(15));
        check("1;a=b\r\nx\r\nA\r\n0123456789\r\n000\r\nT: v\r\n\r\nnext", Some(38));
    }

    #[test]
    fn invalid_chunks_are_refused() {
        for body in [
            "\r\n5\r\nhello\r\n0\r\n\r\n",
            ";x\r\n",
            "x\r\n",
            "5\nhello\r\n",
            "2;\nxx\r\nbo\r\n",
            "5;a\nb\r\nhello\r\n0\r\n\r\n",
            "5;a\rb\r\nhello\r\n0\r\n\r\n",
            "2\r\nboo\r\n",
            "5\r\nhello\n0\r\n\r\n",
            "0\r\nT: v\n\r\n",
            "1234567890123456789\r\n",
        ] {
            check(body, None);
        }
        check(&format!("0\r\nA: {}\r\n\r\n", "x".repeat(4 * 1024)), None);
        check(&format!("5;{}\r\nhello\r\n", "x".repeat(4 * 1024)), None);
    }

    /// Whether the body has ended with these bytes and without others.
    #[track_caller]
    fn check_whole(text: &str, want: bool) {
        for step in 1..=text.len() {
            let mut chunks = Chunks::behind(0);
            let passed: usize = text.as_bytes().chunks(step).map(|piece| chunks.passing(piece).unwrap()).sum();
            assert_eq!((passed, chunks.is_whole()), (text.len(), want), "{text:?} in steps of {step}");
        }
    }

    #[test]
    fn a_body_is_whole_at_its_end_and_not_with_bytes_after_it() {
        check_whole("5\r\nhello\r\n0\r\n\r\n", true);
        check_whole("005 \t;a=b\r\nhello\r\n6\r\n world\r\n0;x\r\nA: b\r\n\r\n", true);
        check_whole("5\r\nhel\no\r\n0\r\n\r\n", true);
        for part in ["5", "5\r\nhello", "5\r\nhello\r", "0\r\n", "0\r\nA: b\r\n", "0\r\n\r"] {
            check_whole(part, false);
        }
        check_whole("0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", false);
    }

    #[test]
    fn the_bytes_before_a_violation_pass() {
        let mut chunks = Chunks::behind(0);
        assert_eq!(chunks.passing(b"5\r\nhelloX\r\n").unwrap(), 8);
        assert_eq!(chunks.passing(b"0\r\n\r\n").unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
