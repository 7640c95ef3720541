//! The framing of bodies: by length, by chunks, or by the end of the connection (RFC 9112 section 6.3). Chunks are
//! parsed strictly, because bytes that are accepted leniently here may be another request to a different parser.

/// The maximum length in bytes of a chunk's size with its extensions, and of all trailers together.
const LINE_BYTES_MAX: usize = 4 * 1024;

/// The framing of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Framing {
    /// No body.
    #[default]
    None,
    /// A number of bytes.
    Length(u64),
    /// Chunks, then trailers.
    Chunked,
    /// All bytes until the connection ends.
    UntilClose,
}

/// The value of `Content-Length` (RFC 9110 section 8.6), if it is unambiguous to every parser: 1 to 18 digits, which
/// fit into any 64-bit integer, and nothing else.
pub(crate) fn length(value: &[u8]) -> Option<u64> {
    let sound = (1..=18).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    sound.then(|| value.iter().fold(0, |length, digit| 10 * length + u64::from(digit - b'0')))
}

/// A body that violates its framing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

/// The kind of the next bytes of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Piece {
    /// A number of bytes of content.
    Content(usize),
    /// A number of bytes of framing, and the state of the body after them.
    Framing(usize, Body),
    /// Undecided until more bytes arrive.
    Unknown,
    /// The body is complete; the bytes belong to something else.
    End,
}

/// The parse state of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Body {
    /// A number of bytes is left.
    Left(u64),
    /// Until the connection ends.
    UntilClose,
    /// Before the size of a chunk.
    Size,
    /// In a chunk, with a number of bytes left.
    Chunk(u64),
    /// After the content of a chunk.
    ChunkEnd,
    /// In the trailers, of which this number of bytes was read.
    Trailers(usize),
}

impl Body {
    /// The state before the body.
    pub(crate) const fn new(framing: Framing) -> Self {
        match framing {
            Framing::None => Self::Left(0),
            Framing::Length(length) => Self::Left(length),
            Framing::Chunked => Self::Size,
            Framing::UntilClose => Self::UntilClose,
        }
    }

    /// Returns `true` if it was read to its end.
    pub(crate) const fn is_over(self) -> bool {
        matches!(self, Self::Left(0))
    }

    /// Records the end of the connection.
    ///
    /// # Errors
    /// If the body is incomplete.
    pub(crate) const fn closed(&mut self) -> Result<(), Malformed> {
        match self {
            Self::UntilClose | Self::Left(0) => {
                *self = Self::Left(0);
                Ok(())
            }
            Self::Left(_) | Self::Size | Self::Chunk(_) | Self::ChunkEnd | Self::Trailers(_) => Err(Malformed),
        }
    }

    /// The kind of the next bytes.
    ///
    /// # Errors
    /// If they violate the framing.
    pub(crate) fn next(self, bytes: &[u8]) -> Result<Piece, Malformed> {
        Ok(match self {
            Self::Left(0) => Piece::End,
            _ if bytes.is_empty() => Piece::Unknown,
            Self::Left(_) | Self::Chunk(_) | Self::UntilClose => Piece::Content(self.within(bytes.len())),
            Self::Size => match whole_line(bytes, LINE_BYTES_MAX)? {
                Some(line) => Piece::Framing(line.len(), size(line)?),
                None => Piece::Unknown,
            },
            Self::ChunkEnd => match bytes {
                [b'\r', b'\n', ..] => Piece::Framing(2, Self::Size),
                [b'\r'] => Piece::Unknown,
                _ => return Err(Malformed),
            },
            Self::Trailers(read) => match whole_line(bytes, LINE_BYTES_MAX - read)? {
                Some(b"\r\n") => Piece::Framing(2, Self::Left(0)),
                Some(line) => Piece::Framing(line.len(), Self::Trailers(read + line.len())),
                None => Piece::Unknown,
            },
        })
    }

    /// The number of the next `most` bytes that can be content without framing in between.
    pub(crate) fn within(self, most: usize) -> usize {
        match self {
            Self::Left(left) | Self::Chunk(left) => usize::try_from(left).map_or(most, |left| left.min(most)),
            Self::UntilClose => most,
            Self::Size | Self::ChunkEnd | Self::Trailers(_) => 0,
        }
    }

    /// Records that content was taken.
    pub(crate) const fn took(&mut self, count: usize) {
        let count = count as u64;
        *self = match *self {
            Self::Left(left) => Self::Left(left.saturating_sub(count)),
            Self::Chunk(left) if left == count => Self::ChunkEnd,
            Self::Chunk(left) => Self::Chunk(left.saturating_sub(count)),
            other @ (Self::UntilClose | Self::Size | Self::ChunkEnd | Self::Trailers(_)) => other,
        };
    }
}

/// The line at the beginning of the bytes, once it is complete. It ends with CRLF, and has no byte that could end a
/// line for another parser.
fn whole_line(bytes: &[u8], max: usize) -> Result<Option<&[u8]>, Malformed> {
    let end = memchr::memchr(b'\n', bytes);
    if end.unwrap_or(bytes.len()) >= max {
        return Err(Malformed);
    }
    let Some(end) = end else { return Ok(None) };
    let is_text = |byte: &u8| *byte == b'\t' || !byte.is_ascii_control();
    match bytes[..end].strip_suffix(b"\r") {
        Some(text) if text.iter().all(is_text) => Ok(Some(&bytes[..=end])),
        Some(_) | None => Err(Malformed),
    }
}

/// The state after the line of a chunk's size. The size must have at least one digit, which the library does not check.
fn size(line: &[u8]) -> Result<Body, Malformed> {
    if !line.first().is_some_and(u8::is_ascii_hexdigit) {
        return Err(Malformed);
    }
    match httparse::parse_chunk_size(line) {
        Ok(httparse::Status::Complete((_, 0))) => Ok(Body::Trailers(0)),
        // A size that does not fit into the counters is invalid.
        Ok(httparse::Status::Complete((_, size))) if size <= u64::MAX >> 1 => Ok(Body::Chunk(size)),
        Ok(httparse::Status::Complete(_) | httparse::Status::Partial) | Err(_) => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses bytes that arrive in pieces of every size. Checks the content, and the number of bytes left over.
    #[track_caller]
    fn check(framing: Framing, bytes: &[u8], want: Result<(&[u8], usize), Malformed>) {
        for step in 1..=bytes.len() {
            let got = read(framing, bytes, step);
            assert_eq!(
                got.as_ref().map(|(content, left)| (content.as_slice(), *left)),
                want.as_ref().copied(),
                "in steps of {step}"
            );
        }
    }

    fn read(framing: Framing, bytes: &[u8], step: usize) -> Result<(Vec<u8>, usize), Malformed> {
        let (mut body, mut content, mut at, mut arrived) = (Body::new(framing), Vec::new(), 0, 0);
        loop {
            match body.next(&bytes[at..arrived])? {
                Piece::Content(count) => {
                    content.extend_from_slice(&bytes[at..at + count]);
                    body.took(count);
                    at += count;
                }
                Piece::Framing(count, then) => {
                    body = then;
                    at += count;
                }
                Piece::Unknown if arrived < bytes.len() => arrived = (arrived + step).min(bytes.len()),
                Piece::Unknown => {
                    body.closed()?;
                    return Ok((content, 0));
                }
                Piece::End => return Ok((content, bytes.len() - at)),
            }
        }
    }

    #[test]
    fn bodies_end_as_their_framing_states() {
        check(Framing::None, b"next", Ok((b"", 4)));
        check(Framing::Length(4), b"bodynext", Ok((b"body", 4)));
        check(Framing::Length(4), b"bod", Err(Malformed));
        check(Framing::UntilClose, b"body", Ok((b"body", 0)));
        check(Framing::Chunked, b"2\r\nbo\r\n2;x=y\r\ndy\r\n0\r\n\r\nnext", Ok((b"body", 4)));
        check(Framing::Chunked, b"0\r\nA: b\r\nC: d\r\n\r\nnext", Ok((b"", 4)));
    }

    #[test]
    fn chunks_that_break_the_rules_are_refused() {
        for bytes in [
            b"2\r\nbo".as_slice(),
            b"2\r\nbody\r\n",
            b"2\nbo\r\n",
            b"g\r\n",
            b"-1\r\n",
            b"\r\n",
            b"ffffffffffffffff\r\n",
            b"fffffffffffffffff\r\n",
            b"2\r\nbo\n0\r\n\r\n",
            b"\r\n\r\n",
            b";x\r\n\r\n",
            b" \r\n\r\n",
            b"2;\nxx\r\nbo\r\n0\r\n\r\n",
            b"2;x\0\r\nbo\r\n0\r\n\r\n",
            b"0\r\nA: b\n\r\n",
            b"0\r\nA: b\r\r\n\r\n",
            b"0\r\n\r\r\n\r\n",
            b"0\r\n\n",
            b"0\r\n",
        ] {
            let got = read(Framing::Chunked, bytes, bytes.len());
            assert_eq!(got, Err(Malformed), "{}", bytes.escape_ascii());
        }
        let long = [b"2;".as_slice(), &[b'x'; LINE_BYTES_MAX]].concat();
        let long = [long.as_slice(), b"\r\nbo\r\n0\r\n\r\n"].concat();
        for step in [100, long.len()] {
            assert_eq!(read(Framing::Chunked, &long, step), Err(Malformed));
        }
        let trailers = [b"0\r\n".as_slice(), &b"a: b\r\n".repeat(LINE_BYTES_MAX)].concat();
        assert_eq!(read(Framing::Chunked, &trailers, 100), Err(Malformed));
    }
}
