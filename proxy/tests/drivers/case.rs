//! One entry of the corpus: the bytes of a client, their pieces, and the answers of the endpoint.

use std::fmt;

use super::message::shown;
use super::recorder::{Reply, Step};

#[derive(Clone)]
pub struct Case {
    /// The name of the case.
    pub name: String,
    /// The bytes from the client, one write for each piece.
    pub pieces: Vec<Vec<u8>>,
    /// The responses of the endpoint, one for each request.
    pub replies: Vec<Reply>,
    /// Whether the client's address is a trusted proxy's.
    pub trusted: bool,
    /// Whether the connections to the endpoint are new.
    pub fresh: bool,
    /// Whether the native driver must take it.
    pub native: bool,
}

impl Case {
    pub fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            name: name.into(),
            pieces: vec![bytes.into()],
            replies: Vec::new(),
            trusted: false,
            fresh: false,
            native: false,
        }
    }

    /// A GET of a path with these further lines, each terminated.
    pub fn get(name: impl Into<String>, host: &str, target: &str, lines: &str) -> Self {
        Self::new(name, format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n"))
    }

    pub fn in_pieces(mut self, pieces: Vec<Vec<u8>>) -> Self {
        self.pieces = pieces;
        self
    }

    pub fn answered(mut self, reply: Reply) -> Self {
        self.replies.push(reply);
        self
    }

    pub fn trusted(mut self) -> Self {
        self.trusted = true;
        self
    }

    /// Uses new connections to the endpoint: whether a broken one is retried depends on its age.
    pub fn fresh(mut self) -> Self {
        self.fresh = true;
        self
    }

    /// Marks the case as unambiguous.
    pub fn native(mut self) -> Self {
        self.native = true;
        self
    }

    /// Whether an answer is sent before its request is complete.
    pub fn is_answered_early(&self) -> bool {
        self.replies.iter().any(|reply| reply.early)
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.pieces.concat()
    }

    /// An estimate of the number of final responses before the client continues.
    pub fn finals(&self) -> usize {
        self.bytes().windows(8).filter(|window| window == b" HTTP/1.").count().max(1)
    }

    /// Whether the first and the second request are HEAD requests, as far as can be determined.
    pub fn heads(&self) -> [bool; 2] {
        let bytes = self.bytes();
        let is_head = |bytes: &[u8]| bytes.trim_ascii_start().starts_with(b"HEAD ");
        let second = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        [is_head(&bytes), self.finals() > 1 && second.is_some_and(|end| is_head(&bytes[end + 4..]))]
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trusted = if self.trusted { ", from a trusted proxy" } else { "" };
        writeln!(f, "{}{trusted}", self.name)?;
        for piece in &self.pieces {
            writeln!(f, "    > {}", shown(piece))?;
        }
        for reply in &self.replies {
            writeln!(f, "    < {}", if reply.early { "before the body:" } else { "" })?;
            for step in &reply.steps {
                match step {
                    Step::Send(bytes) => writeln!(f, "      {}", shown(bytes))?,
                    Step::Pause | Step::Close | Step::Reset => writeln!(f, "      {step:?}")?,
                }
            }
        }
        Ok(())
    }
}
