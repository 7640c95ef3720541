//! The bodies of responses: complete, a list that is serialized piece by piece, or a watch.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http_body::{Body, Frame, SizeHint};

/// The body of a response. It never fails.
pub struct LiteBody(Inner);

enum Inner {
    Whole(Option<Bytes>),
    Pieces(Box<dyn Iterator<Item = Bytes> + Send>),
    Watch(BoxStream<'static, Bytes>),
}

impl LiteBody {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self(Inner::Whole(Some(bytes.into()).filter(|bytes: &Bytes| !bytes.is_empty())))
    }

    /// A body of pieces, each serialized when the previous ones have been sent. A body of one piece has a length.
    pub(crate) fn pieces(mut pieces: impl Iterator<Item = Bytes> + Send + 'static) -> Self {
        let first = pieces.next().unwrap_or_default();
        match pieces.next() {
            None => Self::whole(first),
            Some(second) => Self(Inner::Pieces(Box::new([first, second].into_iter().chain(pieces)))),
        }
    }

    pub(crate) fn watch(frames: BoxStream<'static, Bytes>) -> Self {
        Self(Inner::Watch(frames))
    }

    /// The same body with its bytes, or each frame of a watch, transformed.
    pub(crate) fn map(self, change: impl Fn(Bytes) -> Bytes + Send + 'static) -> Self {
        Self(match self.0 {
            Inner::Whole(bytes) => Inner::Whole(bytes.map(change)),
            Inner::Pieces(pieces) => Inner::Whole(Some(change(pieces.collect::<Vec<_>>().concat().into()))),
            Inner::Watch(frames) => Inner::Watch(frames.map(change).boxed()),
        })
    }
}

impl fmt::Debug for LiteBody {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.0 {
            Inner::Whole(_) => "whole",
            Inner::Pieces(_) => "pieces",
            Inner::Watch(_) => "watch",
        };
        out.debug_tuple("LiteBody").field(&kind).finish()
    }
}

impl Body for LiteBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Inner::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Inner::Pieces(pieces) => Poll::Ready(pieces.next().map(|bytes| Ok(Frame::data(bytes)))),
            Inner::Watch(frames) => {
                frames.as_mut().poll_next(context).map(|frame| frame.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, Inner::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Inner::Pieces(_) | Inner::Watch(_) => SizeHint::default(),
        }
    }
}
