//! The lean driver: plain HTTP/1.1 from a client to an endpoint in plain text, on our own parser, without an allocation.
//! It takes a request only when nothing about it is in doubt; everything else is the full driver's, and a connection
//! passes between the two from request to request. Both call the same steps in the same order.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod agreement;
pub(crate) mod body;
mod fields;
pub(crate) mod pool;
mod progress;
mod relay;
mod request;
mod response;
mod scratch;
mod write;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_config::model::{EndpointId, Head};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use self::body::{Body, Framing, Piece};
use self::progress::{Patience, Progress};
use self::relay::Relay;
use self::request::{Request, View};
use self::scratch::{Room, Scratch};
use crate::answer::{Answer, Reason};
use crate::connection::Conn;
use crate::exchange::{End, Exchange};
use crate::metrics::{Connect, Driver};
use crate::options::Options;
use crate::respond::render;
use crate::retry::Stage;
use crate::runtime::Traffic;
use crate::upstream::Aim;
use crate::{clock, date};

/// What becomes of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// The request is the full driver's; nothing of it was taken.
    Full,
    /// It was answered, and another one may follow.
    Again,
    /// It was the last one.
    Close,
}

/// Whether the settings leave the driver anything to do: it knows no rate that a client must keep up.
pub(crate) const fn serves(options: &Options) -> bool {
    matches!(options.driver, crate::options::Driver::Both) && options.client.send_rate_min == 0
}

/// Answers the request whose head was read ahead, of so many bytes and in lines that end with CRLF, if it may.
pub(crate) async fn carry(conn: &mut Conn, head_bytes: usize, traffic: &Traffic) -> Next {
    let mut scratch = Scratch::take();
    let head = conn.unread().get(..head_bytes).unwrap_or_default();
    if !scratch.request.read(head) {
        scratch.give();
        return Next::Full;
    }
    crate::buffers::make_room(&mut scratch.head);
    scratch.head.extend_from_slice(head);
    let next = request(conn, &mut scratch, traffic).await;
    scratch.give();
    next
}

async fn request(conn: &mut Conn, scratch: &mut Scratch, traffic: &Traffic) -> Next {
    let Scratch { head, request, room } = scratch;
    let view = request.view(head);
    let now = clock::now();
    let mut exchange = Exchange::begin(Driver::Lean, traffic.published.pin(), Arc::clone(&traffic.shared), now);
    let facts = Some(Arc::clone(conn.facts()));
    let decided = exchange.decide(&view, &request.line(), facts, fastrand::u128(..));
    if decided.is_ok() && !exchange.is_plain() {
        exchange.withdraw();
        return Next::Full;
    }
    conn.pass_all();
    conn.advance(head.len());
    let mut progress = Progress::new(request.framing, request.closes);
    let mut over = None;
    let next = match decided {
        Ok(()) => {
            let carried = attempts(conn, (request, &view), room, &mut exchange, &mut progress, traffic).await;
            match carried {
                Ok(at) => {
                    over = Some(at);
                    if progress.closes { Next::Close } else { Next::Again }
                }
                Err(reason) => {
                    let answer = exchange.failed(reason).clone();
                    if answer.reason != Reason::ClientGone {
                        if progress.status.is_none() {
                            give(conn, (&view, room), &exchange, &mut progress, &answer, true).await;
                        } else {
                            // A client that got nothing would take it that it may ask again.
                            send(conn, room).await;
                        }
                    }
                    Next::Close
                }
            }
        }
        Err(answer) => {
            let closes = progress.closes || conn.facts().is_ending() || answer.reason.closes();
            let given = give(conn, (&view, room), &exchange, &mut progress, &answer, closes).await;
            let rest = given && !closes && discard(conn, &mut progress, traffic.options.client.body_discard).await;
            if rest { Next::Again } else { Next::Close }
        }
    };
    let end = End {
        status: progress.status,
        bytes_in: progress.bytes_in,
        bytes_out: progress.bytes_out,
        target: view.target(),
        now: over.unwrap_or_else(clock::now),
        wall: clock::wall(),
    };
    exchange.record(Some(&view), &end);
    if progress.body.is_over() {
        // What is unread is another request's, and nobody need wait for more of this one.
        conn.pass_only(0);
    }
    next
}

/// What a try takes with it from the choice of its endpoint.
#[derive(Clone, Copy)]
struct Try {
    at: (SocketAddr, EndpointId),
    connect: Duration,
    read: Duration,
    write: Duration,
}

impl Try {
    fn of(aim: &Aim<'_>) -> Self {
        let effective = aim.admitted.effective();
        let connect = aim.remaining.map_or(effective.connect_timeout, |left| left.min(effective.connect_timeout));
        Self {
            at: (aim.endpoint.address, aim.endpoint.id),
            connect,
            read: effective.read_timeout,
            write: effective.write_timeout,
        }
    }
}

/// Tries endpoints until one has answered.
async fn attempts(
    conn: &mut Conn,
    (request, view): (&Request, &View<'_>),
    room: &mut Room,
    exchange: &mut Exchange,
    progress: &mut Progress,
    traffic: &Traffic,
) -> Result<Instant, Reason> {
    let limits = &traffic.options.upstream;
    let mut now = exchange.began();
    loop {
        let attempt = Try::of(&exchange.aim(now, fastrand::u64(..))?);
        let pooled = pool::take(attempt.at);
        let reused = pooled.is_some();
        let mut endpoint = match pooled {
            Some(endpoint) => endpoint,
            None => match connect(attempt.at.0, attempt.connect).await {
                Ok(endpoint) => {
                    now = clock::now();
                    endpoint
                }
                Err((how, reason)) => {
                    now = clock::now();
                    if exchange.connect_failed(how, now) {
                        continue;
                    }
                    return Err(exchange.in_time(reason, now));
                }
            },
        };
        exchange.connected(reused, now);
        let bodiless = Body::new(request.framing).is_over();
        let asked_by_head = view.method() == "HEAD";
        let idempotent = view.is_idempotent();
        room.edits.clear();
        exchange.request_edits(view, &mut room.edits)?;
        crate::buffers::make_room(&mut room.to_endpoint);
        write::request(view, &room.edits, &mut room.to_endpoint);
        let client = &traffic.options.client;
        let patience = Patience {
            read: attempt.read,
            write: attempt.write,
            body: client.body_read_stall,
            client: client.write_stall,
        };
        let chunked_up = request.framing == Framing::Chunked;
        let relay = Relay {
            client: &mut *conn,
            endpoint: &mut endpoint,
            exchange: &mut *exchange,
            room: &mut *room,
            progress: &mut *progress,
            patience,
            asked_by_head,
            chunked_up,
        };
        let carried = relay.run().await;
        now = clock::now();
        let Err(reason) = carried else {
            if progress.reusable {
                pool::put(attempt.at, endpoint, limits.pool_size, now);
            }
            return Ok(now);
        };
        let stage = if reused && !progress.heard && reason == Reason::UpstreamBroken {
            Stage::IdleConnectionDied { idempotent, bodiless }
        } else {
            Stage::Later
        };
        let reason = exchange.in_time(reason, now);
        if !exchange.broke(reason, stage, now) {
            return Err(reason);
        }
        room.clear();
        *progress = Progress::new(request.framing, request.closes);
    }
}

/// Opens a connection to an endpoint.
async fn connect(address: SocketAddr, within: Duration) -> Result<TcpStream, (Connect, Reason)> {
    match timeout(within, TcpStream::connect(address)).await {
        // A delay for the sake of fuller packets would only add to each request's time.
        Ok(Ok(stream)) if stream.set_nodelay(true).is_ok() => Ok(stream),
        Ok(_) => Err((Connect::Failed, Reason::ConnectFailed)),
        Err(_) => Err((Connect::TimedOut, Reason::ConnectTimeout)),
    }
}

/// Gives an answer of the edge's own; whether the client took it.
async fn give(
    conn: &mut Conn,
    (view, room): (&View<'_>, &mut Room),
    exchange: &Exchange,
    progress: &mut Progress,
    answer: &Answer,
    closes: bool,
) -> bool {
    let rendered = render(answer, exchange.request_id(), view.method());
    // What may wait there are heads of responses before the last, and of those it may have got a part already.
    crate::buffers::make_room(&mut room.to_client);
    date::with(clock::now(), |date| write::answer(&rendered, closes, date, &mut room.to_client));
    progress.status = Some(rendered.status);
    progress.bytes_out = rendered.body.len();
    send(conn, room).await
}

/// Sends what waits for the client; whether it took it.
async fn send(conn: &mut Conn, room: &Room) -> bool {
    conn.pass_all();
    conn.write_all(&room.to_client).await.is_ok() && conn.flush().await.is_ok()
}

/// Reads and forgets the rest of a request's body; whether it ended in time and as announced.
async fn discard(conn: &mut Conn, progress: &mut Progress, within: Duration) -> bool {
    if progress.body.is_over() {
        return true;
    }
    let reading = async {
        loop {
            let unread = conn.unread();
            match progress.body.next(unread) {
                Ok(Piece::End) => return true,
                Ok(Piece::Unknown) => {
                    if !matches!(conn.read_ahead().await, Ok(1..)) {
                        return false;
                    }
                }
                Ok(Piece::Content(count)) => {
                    progress.bytes_in += count;
                    progress.body.took(count);
                    conn.advance(count);
                }
                Ok(Piece::Framing(count, then)) => {
                    progress.body = then;
                    conn.advance(count);
                }
                Err(_) => return false,
            }
        }
    };
    timeout(within, reading).await.unwrap_or(false)
}
