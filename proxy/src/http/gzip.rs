//! The encoder of compressed bodies (RFC 1952), which works in steps, so that only the state of the format is held. The
//! algorithm is that of zlib-rs.

use std::fmt;

use zlib_rs::{Deflate, DeflateFlush, Status};

/// The window of 32 KiB, plus 16 for the gzip frame, by the convention of zlib.
const WINDOW_BITS: u8 = 15 + 16;

/// The output room that a step needs. With less, the end of a flush could be written repeatedly.
pub(crate) const ROOM_MIN: usize = 64;

/// The maximum growth of an incompressible piece: its header, its trailer, and the block headers.
const GROWTH_BYTES: usize = 128;

/// The goal of a step, besides taking bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Goal {
    /// None: the encoder may wait for more bytes.
    More,
    /// The other side can decode all bytes that were taken.
    Flush,
    /// The end of the body.
    End,
}

/// The bytes moved by a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StepBytes {
    /// The number of bytes taken.
    pub(crate) taken: usize,
    /// The number of bytes given.
    pub(crate) given: usize,
}

/// The encoder is in an invalid state, which its contract rules out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Broken;

/// A body in compression. It takes about [`Cost::COMPRESSION`](crate::budget::Cost::COMPRESSION) of memory.
pub(crate) struct Gzip {
    deflate: Deflate,
    /// Whether bytes were taken that the other side cannot decode yet.
    unflushed: bool,
    over: bool,
}

impl Gzip {
    /// The beginning of a body, with a level from 1 to 9.
    pub(crate) fn new(level: u8) -> Self {
        Self { deflate: Deflate::new(level.clamp(1, 9).into(), true, WINDOW_BITS), unflushed: false, over: false }
    }

    /// Returns `true` if bytes were taken that the other side cannot decode yet.
    pub(crate) const fn has_unflushed(&self) -> bool {
        self.unflushed
    }

    /// Returns `true` if the last byte was given.
    pub(crate) const fn is_over(&self) -> bool {
        self.over
    }

    /// Takes input and gives output, into at least [`ROOM_MIN`] bytes of room. A goal that needs more room is reached
    /// by further steps.
    ///
    /// # Errors
    /// [`Broken`] if the encoder fails.
    pub(crate) fn step(&mut self, from: &[u8], into: &mut [u8], goal: Goal) -> Result<StepBytes, Broken> {
        if self.over {
            return Ok(StepBytes { taken: 0, given: 0 });
        }
        let flush = match goal {
            Goal::More => DeflateFlush::NoFlush,
            Goal::Flush => DeflateFlush::SyncFlush,
            Goal::End => DeflateFlush::Finish,
        };
        let before = (self.deflate.total_in(), self.deflate.total_out());
        let status = self.deflate.compress(from, into, flush).map_err(|_| Broken)?;
        let count = |now: u64, before: u64| usize::try_from(now - before).unwrap_or_default();
        let taken = count(self.deflate.total_in(), before.0);
        let given = count(self.deflate.total_out(), before.1);
        self.over = status == Status::StreamEnd;
        self.unflushed |= taken > 0;
        if goal != Goal::More && taken == from.len() && given < into.len() {
            self.unflushed = false;
        }
        Ok(StepBytes { taken, given })
    }

    /// Compresses and flushes a whole piece, and ends the body with the `last` one.
    ///
    /// # Errors
    /// [`Broken`] if the encoder fails.
    pub(crate) fn piece(&mut self, mut content: &[u8], last: bool) -> Result<Vec<u8>, Broken> {
        let goal = if last { Goal::End } else { Goal::Flush };
        let mut whole = Vec::new();
        let mut filled = 0;
        while !self.over && (last || !content.is_empty() || self.unflushed) {
            whole.resize(filled + content.len() / 2 + GROWTH_BYTES, 0);
            let StepBytes { taken, given } = self.step(content, &mut whole[filled..], goal)?;
            content = &content[taken..];
            filled += given;
        }
        whole.truncate(filled);
        Ok(whole)
    }
}

impl fmt::Debug for Gzip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gzip").field("unflushed", &self.unflushed).field("over", &self.over).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::MultiGzDecoder;

    use super::*;

    /// Bytes that compress a little.
    fn text(count: usize) -> Vec<u8> {
        (0..count).map(|at| b'a' + u8::try_from((at * at / 7 + at / 300) % 23).unwrap()).collect()
    }

    /// Bytes that do not compress.
    fn noise(count: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(7);
        (0..count).map(|_| random.u8(..)).collect()
    }

    fn read(bytes: &[u8]) -> Vec<u8> {
        let mut content = Vec::new();
        MultiGzDecoder::new(bytes).read_to_end(&mut content).unwrap();
        content
    }

    /// The decodable part of an incomplete body.
    fn read_so_far(bytes: &[u8], count: usize) -> Vec<u8> {
        let mut content = vec![0; count];
        MultiGzDecoder::new(bytes).read_exact(&mut content).unwrap();
        content
    }

    #[test]
    fn bodies_are_complete_for_every_split_of_input_and_output() {
        for content in [Vec::new(), b"x".to_vec(), text(1000), text(300_000), noise(200_000)] {
            for (piece, room) in [(1 << 20, 1 << 20), (2048, 4096), (2048, ROOM_MIN), (7, 100)] {
                for level in [1, 5, 9] {
                    let (mut gzip, mut out, mut into) = (Gzip::new(level), Vec::new(), vec![0; room]);
                    for part in content.chunks(piece) {
                        let mut rest = part;
                        while !rest.is_empty() {
                            let moved = gzip.step(rest, &mut into, Goal::More).unwrap();
                            assert_ne!(moved, StepBytes { taken: 0, given: 0 });
                            rest = &rest[moved.taken..];
                            out.extend_from_slice(&into[..moved.given]);
                        }
                    }
                    while !gzip.is_over() {
                        let moved = gzip.step(&[], &mut into, Goal::End).unwrap();
                        out.extend_from_slice(&into[..moved.given]);
                    }
                    assert!(read(&out) == content, "{} bytes by {piece} into {room}", content.len());
                    assert_eq!(gzip.step(b"more", &mut into, Goal::More), Ok(StepBytes { taken: 0, given: 0 }));
                }
            }
        }
    }

    #[test]
    fn flushed_bytes_can_be_read_and_are_written_once() {
        for room in [ROOM_MIN, 65, 100, 4096] {
            let content = noise(30_000);
            let (mut gzip, mut out, mut into) = (Gzip::new(5), Vec::new(), vec![0; room]);
            let mut rest = &content[..];
            while !rest.is_empty() {
                let moved = gzip.step(rest, &mut into, Goal::More).unwrap();
                rest = &rest[moved.taken..];
                out.extend_from_slice(&into[..moved.given]);
            }
            assert!(gzip.has_unflushed());
            while gzip.has_unflushed() {
                let moved = gzip.step(&[], &mut into, Goal::Flush).unwrap();
                out.extend_from_slice(&into[..moved.given]);
            }
            assert!(read_so_far(&out, content.len()) == content, "room for {room}");
            assert!(out.len() < content.len() + 200, "{} bytes with room for {room}", out.len());
        }
    }

    #[test]
    fn pieces_can_be_read_as_they_come() {
        let (mut gzip, mut out) = (Gzip::new(5), Vec::new());
        let pieces = [text(10), text(100_000), b"one line\n".to_vec(), noise(70_000)];
        let mut before = Vec::new();
        for piece in &pieces {
            out.extend(gzip.piece(piece, false).unwrap());
            before.extend_from_slice(piece);
            assert!(read_so_far(&out, before.len()) == before);
            assert_eq!(gzip.piece(&[], false), Ok(Vec::new()), "nothing more is said of nothing");
        }
        out.extend(gzip.piece(b"end", true).unwrap());
        assert!(gzip.is_over() && read(&out) == [&before[..], b"end"].concat());
        assert_eq!(gzip.piece(&[], true), Ok(Vec::new()));
    }

    #[test]
    fn an_encoder_uses_the_memory_that_it_is_charged_for() {
        use crate::budget::Cost;
        let taken = allocation_counter::measure(|| {
            let (mut gzip, mut into) = (Gzip::new(9), vec![0; 4096]);
            let content = noise(100_000);
            let mut rest = &content[..];
            while !rest.is_empty() {
                rest = &rest[gzip.step(rest, &mut into, Goal::More).unwrap().taken..];
            }
        });
        let own = taken.bytes_max.saturating_sub(100_000 + 4096);
        let charged = Cost::COMPRESSION.memory_kib() * 1024;
        assert!(own <= charged && own * 5 > charged * 4, "{own} bytes, charged for {charged}");
    }
}
