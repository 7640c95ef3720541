//! The lines of one run of a container: the last ones, bounded in number and in bytes.

use std::collections::VecDeque;

use bytes::Bytes;

use super::Wanted;
use crate::clock;

/// The maximum number of lines kept of a run.
pub(super) const LINES_MAX: usize = 8_192;
/// The maximum number of bytes kept of a run.
const BYTES_MAX: usize = 512 * 1024;
/// The maximum length of a line; container runtimes cut at the same length.
const LINE_MAX_BYTES: usize = 16 * 1024;
/// The size of one read, give or take a line.
const PIECE_BYTES: usize = 64 * 1024;
const NANOS: u128 = 1_000_000_000;

#[derive(Debug)]
struct Line {
    /// In nanoseconds since 1970.
    time: u128,
    text: Box<[u8]>,
}

/// The kept lines, by their number in the run.
#[derive(Debug, Default)]
pub(super) struct Ring {
    lines: VecDeque<Line>,
    bytes: usize,
    /// The number of the oldest line.
    first: u64,
}

/// The position of a reader.
#[derive(Debug)]
pub(super) struct Cursor {
    next: u64,
    since: u128,
    timestamps: bool,
    /// The number of bytes that it may still read.
    left: Option<u64>,
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    Lines(Bytes),
    /// No lines now; there may be more later.
    Nothing,
    /// The limit is reached, or unread lines are gone.
    Over,
}

impl Ring {
    pub(super) fn push(&mut self, time: u128, text: &[u8]) {
        // An empty line is a line.
        let mut pieces = text.chunks(LINE_MAX_BYTES);
        let first = pieces.next().unwrap_or_default();
        for piece in std::iter::once(first).chain(pieces) {
            self.bytes += piece.len();
            self.lines.push_back(Line { time, text: piece.into() });
        }
        while self.lines.len() > LINES_MAX || self.bytes > BYTES_MAX {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.text.len();
            self.first += 1;
        }
    }

    fn end(&self) -> u64 {
        self.first + self.lines.len() as u64
    }

    /// The start of a reader.
    pub(super) fn cursor(&self, wanted: &Wanted) -> Cursor {
        let begin = wanted.tail.map_or(self.first, |tail| self.end().saturating_sub(tail).max(self.first));
        let since = wanted.since.unwrap_or_default();
        Cursor { next: begin, since, timestamps: wanted.timestamps, left: wanted.bytes_max }
    }

    pub(super) fn has_more(&self, cursor: &Cursor) -> bool {
        cursor.next < self.end()
    }

    /// Advances a reader.
    pub(super) fn read(&self, cursor: &mut Cursor) -> Read {
        if cursor.next < self.first || cursor.left == Some(0) {
            return Read::Over;
        }
        let from = usize::try_from(cursor.next - self.first).unwrap_or(usize::MAX);
        let mut piece = Vec::new();
        for line in self.lines.iter().skip(from) {
            if piece.len() >= PIECE_BYTES {
                break;
            }
            cursor.next += 1;
            if line.time < cursor.since {
                continue;
            }
            if cursor.timestamps {
                piece.extend_from_slice(timestamp(line.time).as_bytes());
                piece.push(b' ');
            }
            piece.extend_from_slice(&line.text);
            piece.push(b'\n');
        }
        if let Some(left) = &mut cursor.left {
            piece.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= piece.len() as u64;
        }
        if piece.is_empty() { Read::Nothing } else { Read::Lines(piece.into()) }
    }
}

/// A timestamp with nine decimal places, as kubelets write it.
fn timestamp(nanos: u128) -> String {
    let seconds = clock::timestamp(u64::try_from(nanos / NANOS).unwrap_or_default());
    format!("{}.{:09}Z", seconds.trim_end_matches('Z'), nanos % NANOS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(ring: &Ring, wanted: Wanted, expected: &str) {
        let mut cursor = ring.cursor(&wanted);
        let mut all = String::new();
        while let Read::Lines(lines) = ring.read(&mut cursor) {
            all.push_str(std::str::from_utf8(&lines).unwrap());
        }
        assert_eq!(all, expected, "{wanted:?}");
    }

    #[test]
    fn options_choose_lines() {
        let mut ring = Ring::default();
        for (nth, text) in ["one", "two", "", "four"].into_iter().enumerate() {
            ring.push(nth as u128 * NANOS + 5, text.as_bytes());
        }
        let all = Wanted::default();
        check(&ring, all, "one\ntwo\n\nfour\n");
        check(&ring, Wanted { tail: Some(2), ..all }, "\nfour\n");
        check(&ring, Wanted { tail: Some(0), ..all }, "");
        check(&ring, Wanted { tail: Some(9), ..all }, "one\ntwo\n\nfour\n");
        check(&ring, Wanted { since: Some(3 * NANOS), ..all }, "four\n");
        check(&ring, Wanted { bytes_max: Some(6), ..all }, "one\ntw");
        check(&ring, Wanted { tail: Some(1), timestamps: true, ..all }, "1970-01-01T00:00:03.000000005Z four\n");
    }

    #[test]
    fn the_oldest_lines_are_dropped_first() {
        let mut ring = Ring::default();
        for nth in 0..=LINES_MAX {
            ring.push(0, nth.to_string().as_bytes());
        }
        assert_eq!((ring.lines.len(), ring.first), (LINES_MAX, 1));
        ring.push(0, &vec![b'x'; BYTES_MAX + 1]);
        assert!(ring.bytes <= BYTES_MAX && ring.lines.iter().all(|line| line.text.len() <= LINE_MAX_BYTES));
        let kept: usize = ring.lines.iter().map(|line| line.text.len()).sum();
        assert_eq!(kept, ring.bytes);
    }
}
