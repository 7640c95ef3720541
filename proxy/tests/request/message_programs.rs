//! Random messages through both drivers and all pairs of protocols, over connections that are reused, between a client
//! and an endpoint that read strictly: whatever the pieces, the frames and the faults, each message has one end, and it
//! is where the other side has put it.
//!
//! `MESSAGE_SECONDS=600` plays more of them, `MESSAGE_SEED=N` those of one seed.

use std::time::Duration;

use fastrand::Rng;
use futures::FutureExt as _;
use tokio::time::sleep;

use super::message_ends::{Head, Side};
use super::strict::{Answer, Content, End, Fault, Framing};
use super::strict_clients::Received;

/// The first seed. Each seed has its own data planes.
const SEED: u64 = 935;

const SECONDS: u64 = 3;

/// The number of messages of a seed for each data plane. h2 ends a connection after 100 empty frames.
const MESSAGES: usize = 20;

/// The most pieces of a message, which together fit into the smallest window.
const PIECES_MAX: usize = 4;
const SIZES: [usize; 6] = [0, 0, 1, 10, 300, 3000];

/// A request, and its answer.
#[derive(Debug)]
struct Program {
    head: Head,
    content: Content,
    answer: Answer,
}

impl Program {
    fn of(random: &mut Rng, endpoint_is_http2: bool) -> Self {
        let mut head = Head {
            method: choose(random, &["GET", "HEAD", "POST", "PUT", "DELETE"]),
            is_http2: random.bool(),
            fields: Vec::new(),
            is_absolute: random.u8(..4) == 0,
        };
        let uploads = matches!(head.method, "POST" | "PUT") || random.u8(..4) == 0;
        let content = if uploads { content(random, head.is_http2, false) } else { Content::NONE };
        let status = choose(random, &[200, 200, 200, 204, 304, 404]);
        let is_bodiless = head.method == "HEAD" || matches!(status, 204 | 304);
        let mut answer =
            Answer { interim: random.usize(..3), ..Answer::of(status, self::content(random, endpoint_is_http2, true)) };
        if is_bodiless {
            // Bytes that come later can be taken for those of the next response.
            answer.content.pause = false;
            if answer.content.framing == Framing::Close || random.bool() {
                answer.content = Content::NONE;
            } else if random.u8(..4) == 0 {
                answer.content.end = End::Never;
            }
        } else {
            answer.fault = match random.u8(..8) {
                0 if answer.content.framing != Framing::Close => Some(Fault::Cut),
                1 if !endpoint_is_http2 && answer.content.framing != Framing::Close => Some(Fault::Excess),
                _ => None,
            };
            // As above.
            answer.content.pause &= answer.fault != Some(Fault::Excess);
        }
        if answer.fault.is_none() {
            let fields: &[&[_]] =
                &[&[], &[], &[("expect", "100-continue")], &[("content-type", "application/grpc"), ("te", "trailers")]];
            head.fields = choose(random, fields).to_vec();
        }
        Self { head, content, answer }
    }

    /// Plays it, and returns what was wrong.
    async fn play(&self, side: &mut Side) -> Result<(), String> {
        let Self { head, content, answer } = self;
        let played = side.ask(head, content, answer).await;
        let bodies = side.seen()?;
        // A request without a response may be sent again.
        let is_cut = answer.fault == Some(Fault::Cut);
        if bodies.is_empty() || bodies.iter().any(|body| *body != content.whole()) || (bodies.len() > 1 && !is_cut) {
            return Err(format!("the endpoint has read {bodies:?}, and the client {played:?}"));
        }
        if is_cut {
            side.drop_clients();
            return match played {
                Err(_) | Ok(Received { status: 502, .. }) => Ok(()),
                Ok(received) => Err(format!("whole: {received:?}")),
            };
        }
        let is_bodiless = head.method == "HEAD" || matches!(answer.status, 204 | 304);
        let body = if is_bodiless { Vec::new() } else { answer.content.whole() };
        let want = Received { status: answer.status, body };
        if played.as_ref() == Ok(&want) { Ok(()) } else { Err(format!("the client has read {played:?}")) }
    }
}

fn choose<T: Copy>(random: &mut Rng, of: &[T]) -> T {
    of[random.usize(..of.len())]
}

/// Content for a protocol; only that of a response can end with its connection.
fn content(random: &mut Rng, is_http2: bool, is_response: bool) -> Content {
    let count = random.usize(..=PIECES_MAX);
    let framing = match random.u8(..4) {
        0 => Framing::Length,
        1 if is_response && !is_http2 => Framing::Close,
        _ => Framing::Chunked,
    };
    Content {
        pieces: (0..count).map(|_| vec![random.alphanumeric() as u8; choose(random, &SIZES)]).collect(),
        framing,
        end: if random.u8(..4) == 0 { End::Trailers } else { End::Last },
        padding: random.bool().then(|| random.u8(..)),
        pause: random.u8(..5) == 0,
    }
}

#[expect(clippy::disallowed_methods, reason = "a test has no command line")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

async fn play_seed(seed: u64) {
    for (position, mut side) in Side::all().await.into_iter().enumerate() {
        let mut random = Rng::with_seed(seed ^ (position as u64) << 48);
        for step in 0..MESSAGES {
            let program = Program::of(&mut random, side.is_http2);
            if let Err(fault) = program.play(&mut side).await {
                panic!("MESSAGE_SEED={seed}, {}, message {step}: {program:?}: {fault}", side.name);
            }
        }
        let name = side.name.clone();
        side.end().await.unwrap_or_else(|fault| panic!("MESSAGE_SEED={seed}, {name}, at the end: {fault}"));
    }
}

#[tokio::test]
async fn random_messages_end_where_they_end() {
    if let Some(seed) = number("MESSAGE_SEED") {
        return play_seed(seed).await;
    }
    let seconds = number("MESSAGE_SECONDS").unwrap_or(SECONDS);
    let mut is_over = std::pin::pin!(sleep(Duration::from_secs(seconds)));
    for seed in SEED.. {
        play_seed(seed).await;
        if (&mut is_over).now_or_never().is_some() {
            return;
        }
    }
}
