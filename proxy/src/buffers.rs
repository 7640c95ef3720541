//! The buffers of a traffic thread. A request takes them and returns them, so that an idle connection holds none, and a
//! thread allocates only when its number of concurrent requests grows.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

use bytes::BytesMut;

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
    small: Vec<BytesMut>,
    large: Vec<BytesMut>,
    /// The number of large buffers in use.
    large_out: usize,
}

/// A buffer of the thread. It is allocated on first use and returned when it is dropped.
#[derive(Default)]
pub(crate) struct Buffer {
    bytes: BytesMut,
    /// Its capacity in bytes; 0 before it is allocated.
    room: usize,
}

impl Buffer {
    /// Makes room for the next read or write. An empty buffer has its whole capacity again, wherever its last bytes
    /// were.
    pub(crate) fn make_room(&mut self) {
        if self.bytes.is_empty() {
            if self.room == 0 || !self.bytes.try_reclaim(self.room) {
                self.give();
                let small = FREE.with_borrow_mut(|free| free.small.pop());
                let bytes = small.unwrap_or_else(|| BytesMut::with_capacity(BUFFER_BYTES));
                (self.bytes, self.room) = (bytes, BUFFER_BYTES);
            }
        } else if self.is_full() {
            self.bytes.reserve(BUFFER_BYTES);
        }
    }

    /// Returns `true` if it holds bytes and has no room behind them.
    pub(crate) fn is_full(&self) -> bool {
        !self.bytes.is_empty() && self.bytes.len() == self.bytes.capacity()
    }

    /// Returns `true` for a large buffer.
    pub(crate) const fn is_large(&self) -> bool {
        self.room == LARGE_BYTES
    }

    /// The number of bytes of content that may be added, without its framing.
    pub(crate) fn space(&self) -> usize {
        (self.room.max(BUFFER_BYTES) - SLACK_BYTES).saturating_sub(self.bytes.len())
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
            may.then(|| large.unwrap_or_else(|| BytesMut::with_capacity(LARGE_BYTES)))
        });
        let Some(mut bytes) = large else { return false };
        bytes.extend_from_slice(&self.bytes);
        self.give();
        (self.bytes, self.room) = (bytes, LARGE_BYTES);
        true
    }

    /// Discards the bytes and returns the buffer to the thread.
    pub(crate) fn give(&mut self) {
        let (mut bytes, room) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.room));
        // A buffer without an assigned room was not taken from the thread.
        if room == 0 {
            return;
        }
        let large = room == LARGE_BYTES;
        bytes.clear();
        // A buffer that has grown is freed, and so is one that is still shared.
        let kept = !bytes.try_reclaim(room + 1) && bytes.try_reclaim(room);
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

    /// Returns a large buffer to the thread if it is empty.
    pub(crate) fn shrink_if_empty(&mut self) {
        if self.is_large() {
            self.give_if_empty();
        }
    }

    /// Returns the buffer to the thread if it is empty.
    pub(crate) fn give_if_empty(&mut self) {
        if self.bytes.is_empty() {
            self.give();
        }
    }
}

impl Deref for Buffer {
    type Target = BytesMut;

    fn deref(&self) -> &BytesMut {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut BytesMut {
        &mut self.bytes
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
        f.debug_struct("Buffer").field("len", &self.bytes.len()).field("room", &self.room).finish()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Buf;

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
    fn a_grown_or_shared_buffer_is_not_pooled() {
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
        for large in [false, true] {
            let mut shared = with(2);
            assert_eq!(large, large && shared.grow());
            let small = kept().0;
            let part = shared.split_to(1);
            drop(shared);
            assert_eq!(kept(), (small, 0, 0));
            drop(part);
        }
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
