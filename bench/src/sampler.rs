//! Latency over time, which wrk does not report: one client that sends requests at a fixed pace over one kept
//! connection.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::clock::{now, pause};
use crate::poll::{is_right, question};

/// One request.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Sample {
    /// The time at which it was due, from the beginning, in milliseconds.
    pub(crate) at_ms: f64,
    /// From then until the response was complete, in milliseconds; a request that has to wait for a late response has
    /// waited too. `None` if the connection broke or the response was not 200.
    pub(crate) latency_ms: Option<f64>,
}

/// Requests `/` of a host at a fixed pace until told to stop.
///
/// # Errors
/// When no thread can be started.
pub(crate) async fn sample(
    address: SocketAddr,
    host: &str,
    pace: Duration,
    stop: CancellationToken,
) -> anyhow::Result<Vec<Sample>> {
    let (question, (sender, receiver)) = (question(host), oneshot::channel());
    std::thread::Builder::new().name("sampler".to_owned()).spawn(move || {
        drop(sender.send(ask(address, question.as_bytes(), pace, &|| stop.is_cancelled())));
    })?;
    Ok(receiver.await?)
}

fn ask(address: SocketAddr, question: &[u8], pace: Duration, is_over: &dyn Fn() -> bool) -> Vec<Sample> {
    let (start, mut samples, mut kept) = (now(), Vec::new(), None);
    let mut due = start;
    while !is_over() {
        pause(due.saturating_duration_since(now()));
        let right = is_right(&mut kept, address, question);
        let latency = now() - due;
        samples.push(Sample {
            at_ms: (due - start).as_secs_f64() * 1e3,
            latency_ms: right.then_some(latency.as_secs_f64() * 1e3),
        });
        due += pace;
    }
    samples
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// Responds twice, the second time late, and then closes.
    fn late(listener: &TcpListener) {
        let (mut stream, _) = listener.accept().unwrap();
        for delay in [0, 30] {
            let mut bytes = [0; 256];
            assert!(stream.read(&mut bytes).unwrap() > 0);
            pause(Duration::from_millis(delay));
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
        }
    }

    #[test]
    fn a_late_answer_delays_later_requests_and_a_closed_connection_fails() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || late(&listener));
        let asked = std::cell::Cell::new(0);
        let samples =
            ask(address, question("a").as_bytes(), Duration::from_millis(10), &|| asked.replace(asked.get() + 1) == 3);
        server.join().unwrap();
        let [first, second, third] = samples[..] else { panic!("{samples:?}") };
        assert!(first.latency_ms.is_some() && second.latency_ms.is_some_and(|ms| ms >= 30.0), "{samples:?}");
        assert!(third.latency_ms.is_none() && (third.at_ms - 20.0).abs() < 0.001, "{samples:?}");
    }
}
