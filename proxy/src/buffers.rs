//! The buffers of a traffic thread that nobody uses at the moment. They come and go with every request, so that a
//! connection holds none while it is idle, and a thread allocates only for more requests at once than ever before.

use std::cell::RefCell;

use bytes::BytesMut;

/// The room of a buffer that is handed out.
pub(crate) const BUFFER_BYTES: usize = 16 * 1024;

/// Buffers that a thread keeps: 4 MiB of them.
const KEPT_MAX: usize = 256;

thread_local! {
    static FREE: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer with room for [`BUFFER_BYTES`].
pub(crate) fn take() -> BytesMut {
    let free = FREE.with_borrow_mut(Vec::pop);
    free.unwrap_or_else(|| BytesMut::with_capacity(BUFFER_BYTES))
}

/// Gives a buffer back. One that has grown is let go, and so is one of which a part lives on elsewhere.
pub(crate) fn give(mut buffer: BytesMut) {
    buffer.clear();
    if !buffer.try_reclaim(BUFFER_BYTES) || buffer.capacity() > BUFFER_BYTES {
        return;
    }
    FREE.with_borrow_mut(|free| {
        if free.len() < KEPT_MAX {
            free.push(buffer);
        }
    });
}

/// Makes room for the next read into a buffer that is in use. One that is empty has all of its room again, wherever in it
/// the last bytes were.
pub(crate) fn make_room(buffer: &mut BytesMut) {
    if buffer.is_empty() {
        if !buffer.try_reclaim(BUFFER_BYTES) {
            *buffer = take();
        }
    } else if buffer.capacity() == buffer.len() {
        buffer.reserve(BUFFER_BYTES);
    }
}

/// Gives a buffer back that has nothing in it.
pub(crate) fn give_if_empty(buffer: &mut BytesMut) {
    if buffer.is_empty() {
        give(std::mem::take(buffer));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Buf;

    use super::*;

    #[test]
    fn a_buffer_comes_back_empty_and_whole() {
        let mut buffer = take();
        buffer.extend_from_slice(&[1; 100]);
        let at = buffer.as_ptr();
        buffer.advance(60);
        give(buffer);
        let again = take();
        assert_eq!((again.len(), again.as_ptr(), again.capacity() >= BUFFER_BYTES), (0, at, true));
    }

    #[test]
    fn a_buffer_that_was_filled_and_emptied_has_its_room_again() {
        let mut buffer = take();
        let at = buffer.as_ptr();
        for filled in [BUFFER_BYTES, 15_000] {
            buffer.extend_from_slice(&vec![1; filled]);
            buffer.advance(filled);
            make_room(&mut buffer);
            assert_eq!((buffer.as_ptr(), buffer.capacity()), (at, BUFFER_BYTES));
        }
        buffer.extend_from_slice(&[1; BUFFER_BYTES]);
        buffer.advance(BUFFER_BYTES);
        give_if_empty(&mut buffer);
        assert_eq!((take().as_ptr(), buffer.capacity()), (at, 0));
    }

    #[test]
    fn a_buffer_that_has_grown_or_is_shared_is_let_go() {
        let mut grown = take();
        grown.extend_from_slice(&vec![0; 10 * BUFFER_BYTES]);
        give(grown);
        let mut shared = take();
        shared.extend_from_slice(b"ab");
        let part = shared.split_to(1);
        give(shared);
        assert_eq!(FREE.with_borrow(Vec::len), 0);
        drop(part);
    }
}
