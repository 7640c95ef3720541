//! The buffers of a traffic thread. A request takes them and returns them, so that an idle connection holds none, and a
//! thread allocates only when its number of concurrent requests grows.

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;

/// The capacity of a buffer.
pub(crate) const BUFFER_BYTES: usize = 16 * 1024;

/// The capacity of a large buffer, for large bodies: it saves system calls.
pub(crate) const LARGE_BYTES: usize = 256 * 1024;

/// The space that is left free for framing when content is added.
const SLACK_BYTES: usize = 1024;

/// The maximum number of free buffers that a thread keeps: 4 MiB.
const KEPT_MAX: usize = 256;

/// The maximum number of large buffers of a thread, 16 MiB: slow clients with large bodies get no more memory than
/// that, and later requests use small buffers.
pub(crate) const LARGE_MAX: usize = 64;

thread_local! {
    static FREE: RefCell<Free> = const { RefCell::new(Free { small: Vec::new(), large: Vec::new(), large_out: 0 }) };
}

/// The free buffers.
struct Free {
    small: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
    /// The number of large buffers in use.
    large_out: usize,
}

/// A buffer of the thread: bytes are appended at its end and taken from its beginning. It is allocated on first use and
/// returned when it is dropped.
#[derive(Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// The number of bytes at its beginning that were taken.
    taken: usize,
    /// Its capacity in bytes; 0 before it is allocated.
    room: usize,
}

impl Buffer {
    /// Makes room for the next read or write. An empty buffer has its whole capacity again, wherever its last bytes
    /// were.
    pub(crate) fn make_room(&mut self) {
        if self.is_empty() {
            self.clear();
            if self.room == 0 {
                let small = FREE.with_borrow_mut(|free| free.small.pop());
                (self.bytes, self.room) = (small.unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES)), BUFFER_BYTES);
            }
        } else if self.is_full() {
            // Each byte is moved once at most, because at least as many were taken.
            if self.taken >= self.len() {
                self.bytes.drain(..std::mem::take(&mut self.taken));
            } else {
                self.bytes.reserve(BUFFER_BYTES);
            }
        }
    }

    /// Its end, to append to. Without [`Self::make_room`] it has no room, or not its whole room.
    pub(crate) const fn end(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Appends bytes, to a buffer of the thread if it was not allocated yet.
    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        if self.room == 0 {
            self.make_room();
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes bytes from the beginning, at most all.
    pub(crate) fn advance(&mut self, count: usize) {
        self.taken = self.taken.saturating_add(count).min(self.bytes.len());
    }

    /// Discards the bytes, and keeps the buffer.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.taken = 0;
    }

    /// Returns `true` if it holds bytes and has no room behind them.
    pub(crate) fn is_full(&self) -> bool {
        !self.is_empty() && self.bytes.len() == self.bytes.capacity()
    }

    /// Returns `true` for a large buffer.
    pub(crate) const fn is_large(&self) -> bool {
        self.room == LARGE_BYTES
    }

    /// The number of bytes of content that may be added, without its framing.
    pub(crate) fn space(&self) -> usize {
        (self.room.max(BUFFER_BYTES) - SLACK_BYTES).saturating_sub(self.len())
    }

    /// Moves the bytes to a large buffer, if this is a small one and the thread has one left. Returns `true` if it did.
    pub(crate) fn grow(&mut self) -> bool {
        if self.is_large() {
            return false;
        }
        let large = FREE.with_borrow_mut(|free| {
            let large = free.large.pop();
            let may = large.is_some() || free.large_out < LARGE_MAX;
            free.large_out += usize::from(may);
            may.then(|| large.unwrap_or_else(|| Vec::with_capacity(LARGE_BYTES)))
        });
        let Some(mut bytes) = large else { return false };
        bytes.extend_from_slice(self);
        self.give();
        (self.bytes, self.room) = (bytes, LARGE_BYTES);
        true
    }

    /// Discards the bytes and returns the buffer to the thread.
    pub(crate) fn give(&mut self) {
        // A buffer without an assigned room was not taken from the thread.
        if self.room == 0 {
            return;
        }
        self.clear();
        let (bytes, room) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.room));
        let large = room == LARGE_BYTES;
        // A buffer that has grown is freed.
        let kept = bytes.capacity() == room;
        // At the end of the thread the list may be gone.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            free.large_out -= usize::from(large);
            let list = if large { &mut free.large } else { &mut free.small };
            if kept && list.len() < KEPT_MAX {
                list.push(bytes);
            }
        });
    }

    /// Its capacity, without the bytes that were taken.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity() - self.taken
    }

    /// Returns a large buffer to the thread if it is empty.
    pub(crate) fn shrink_if_empty(&mut self) {
        if self.is_large() {
            self.give_if_empty();
        }
    }

    /// Returns the buffer to the thread if it is empty.
    pub(crate) fn give_if_empty(&mut self) {
        if self.is_empty() {
            self.give();
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.give();
    }
}

impl fmt::Debug for Buffer {
    /// Without the bytes, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len()).field("room", &self.room).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(count: usize) -> Buffer {
        let mut buffer = Buffer::default();
        buffer.make_room();
        buffer.extend_from_slice(&vec![1; count]);
        buffer
    }

    fn kept() -> (usize, usize, usize) {
        FREE.with_borrow(|free| (free.small.len(), free.large.len(), free.large_out))
    }

    #[test]
    fn a_returned_buffer_is_empty_and_keeps_its_capacity() {
        let mut buffer = with(100);
        let at = buffer.as_ptr();
        buffer.advance(60);
        drop(buffer);
        let again = with(0);
        assert_eq!((again.len(), again.as_ptr(), again.capacity()), (0, at, BUFFER_BYTES));
    }

    #[test]
    fn a_drained_buffer_has_its_whole_capacity_again() {
        for large in [false, true] {
            let mut buffer = with(0);
            assert_eq!(large, large && buffer.grow());
            let (at, whole) = (buffer.as_ptr(), buffer.capacity());
            for filled in [whole, 15_000] {
                buffer.extend_from_slice(&vec![1; filled]);
                assert_eq!(buffer.is_full(), filled == whole);
                buffer.advance(filled);
                buffer.make_room();
                assert_eq!((buffer.as_ptr(), buffer.capacity()), (at, whole));
            }
            buffer.extend_from_slice(&vec![1; whole]);
            buffer.advance(whole);
            buffer.give_if_empty();
            assert_eq!(buffer.capacity(), 0);
            buffer.make_room();
            assert_eq!(large, large && buffer.grow());
            assert_eq!(buffer.as_ptr(), at);
        }
    }

    #[test]
    fn bytes_without_room_before_them_are_kept() {
        let (mut buffer, mut own) = (Buffer::default(), Buffer::default());
        buffer.extend_from_slice(b"ab");
        assert_eq!(buffer.capacity(), BUFFER_BYTES);
        own.end().extend_from_slice(b"ab");
        for buffer in [&mut buffer, &mut own] {
            buffer.make_room();
            buffer.extend_from_slice(b"c");
            assert_eq!(&**buffer, b"abc");
        }
    }

    #[test]
    fn a_full_buffer_moves_its_bytes_to_its_beginning_only_if_most_were_taken() {
        let mut buffer = with(BUFFER_BYTES);
        let at = buffer.as_ptr();
        buffer.advance(BUFFER_BYTES / 2);
        buffer.make_room();
        assert_eq!((buffer.as_ptr(), buffer.len(), buffer.capacity()), (at, BUFFER_BYTES / 2, BUFFER_BYTES));
        buffer.extend_from_slice(&[2; BUFFER_BYTES / 2]);
        buffer.advance(1);
        buffer.make_room();
        assert!(buffer.capacity() > BUFFER_BYTES);
        assert_eq!((buffer.len(), buffer.first(), buffer.last()), (BUFFER_BYTES - 1, Some(&1), Some(&2)));
        buffer.advance(usize::MAX);
        assert!(buffer.is_empty());
    }

    #[test]
    fn a_grown_buffer_is_not_pooled() {
        drop(with(10 * BUFFER_BYTES));
        // The same for a buffer with exactly as much left as another has in all.
        let mut grown = with(2 * BUFFER_BYTES);
        grown.advance(BUFFER_BYTES);
        drop(grown);
        assert_eq!(kept(), (0, 0, 0));
        let mut grown = with(0);
        assert!(grown.grow());
        grown.extend_from_slice(&[0; LARGE_BYTES + 1]);
        let small = kept().0;
        drop(grown);
        assert_eq!(kept(), (small, 0, 0));
    }

    #[test]
    fn large_buffers_take_over_the_bytes_and_are_limited() {
        let mut buffer = with(BUFFER_BYTES);
        buffer.advance(7);
        assert_eq!((buffer.space(), buffer.grow(), buffer.grow()), (0, true, false));
        assert_eq!((buffer.len(), buffer.capacity()), (BUFFER_BYTES - 7, LARGE_BYTES));
        assert_eq!(buffer.space(), LARGE_BYTES - SLACK_BYTES - buffer.len());
        let mut others: Vec<Buffer> = (1..LARGE_MAX).map(|_| with(1)).collect();
        assert!(others.iter_mut().all(Buffer::grow));
        let mut last = with(1);
        assert!(!last.grow());
        assert_eq!(kept().2, LARGE_MAX);
        others.pop();
        assert!(last.grow());
        drop((buffer, others, last));
        assert_eq!((kept().1, kept().2), (LARGE_MAX, 0));
    }
}
