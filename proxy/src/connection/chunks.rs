//! The grammar check of a chunked body that passes through, which also finds its end. Pingora accepts chunk sizes
//! without digits, and any bytes after them; a proxy in front of the edge may parse another body from those bytes, and
//! a smuggled request after it.

use std::io;

use tokio::io::ReadBuf;

use crate::http::body::{Body, Framing, Malformed, Piece};

/// Parses the bytes that a driver reads.
#[derive(Debug)]
pub(crate) struct Chunks {
    /// Bytes of the head that have not passed yet.
    head: usize,
    body: Body,
    /// The beginning of an incomplete line.
    line: Vec<u8>,
    broken: bool,
}

impl Chunks {
    /// For a body after a head of `head` bytes.
    pub(crate) const fn behind(head: usize) -> Self {
        Self { head, body: Body::new(Framing::Chunked), line: Vec::new(), broken: false }
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
        let bytes = &buf.filled()[before..];
        let own = self.own(bytes)?;
        // The bytes after the body are not checked.
        let passed = if self.is_over() { bytes.len() } else { own };
        buf.set_filled(before + passed);
        Ok(())
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
        for body in ["\r\n5\r\nhello\r\n0\r\n\r\n", ";x\r\n", "2;\nxx\r\nbo\r\n", "2\r\nboo\r\n", "0\r\nT: v\n\r\n"] {
            check(body, None);
        }
    }
}
