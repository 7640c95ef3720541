//! The work of requests: the time that this process has spent on a processor.

use std::fs;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use tidegate_lite::LiteService;
use tower::ServiceExt as _;

/// The longer of two lists has this many times the elements of the shorter one. Work in proportion to them then takes
/// eight times as much, or up to twice that if large texts leave the caches of the processor and the pages that the
/// allocator keeps, and work that grows with the pairs of elements takes 64 times as much: far from the limit, both.
pub(crate) const FACTOR: usize = 8;
const GROWTH_MAX: f64 = 24.0;
/// The elements of the longer list, where nothing else is said.
pub(crate) const LONG: usize = 4_000;
/// The number of measurements, of which the best counts: a busy machine can only make one worse.
const TRIES: usize = 6;

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) media: &'static str,
    pub(crate) body: String,
}

impl Call {
    pub(crate) fn new(method: &'static str, path: &str, body: &Value) -> Self {
        Self { method, path: path.to_owned(), media: "application/json", body: body.to_string() }
    }

    pub(crate) fn patch(kind: &'static str, path: &str, body: &Value) -> Self {
        Self { method: "PATCH", path: path.to_owned(), media: kind, body: body.to_string() }
    }

    /// Sends it, and returns the code of the answer and its body.
    pub(crate) async fn send(&self, service: &LiteService) -> (u16, Bytes) {
        let request = Request::builder().method(self.method).uri(&self.path).header(CONTENT_TYPE, self.media);
        let request = request.header(ACCEPT, "application/json").body(Full::from(self.body.clone())).unwrap();
        let answer = service.clone().oneshot(request).await.unwrap();
        let code = answer.status().as_u16();
        (code, answer.into_body().collect().await.unwrap().to_bytes())
    }
}

/// The time that all threads of this process have spent on a processor (`proc_pid_schedstat(5)`). The threads of the
/// runtime stay for as long as a measurement takes.
pub(crate) fn spent() -> Duration {
    let threads = fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path().join("schedstat"));
    let nanos = threads.filter_map(|file| fs::read_to_string(file).ok()?.split(' ').next()?.parse::<u64>().ok());
    Duration::from_nanos(nanos.sum())
}

/// Runs the work for a list of `long` elements and for a shorter one, and returns both times if the longer took too
/// much more. `run` does the work for a number of elements and returns the time it took.
pub(crate) async fn excess(long: usize, run: impl AsyncFn(usize) -> Duration) -> Option<(Duration, Duration)> {
    let (mut least, mut most) = (Duration::MAX, Duration::MAX);
    for _ in 0..TRIES {
        least = least.min(run(long / FACTOR).await);
        most = most.min(run(long).await);
        if most < least.mul_f64(GROWTH_MAX) {
            return None;
        }
    }
    Some((least, most))
}
