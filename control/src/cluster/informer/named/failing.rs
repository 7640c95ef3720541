//! The Secrets whose last request failed: the number of consecutive failures, and the ones to retry when the server has
//! recovered. Pure; the reasoning about pauses of informers applies here as well.

use std::collections::BTreeMap;

use tidegate_config::object::ObjectName;

use super::super::failure::About;

/// The failing Secrets.
#[derive(Debug, Default)]
pub(super) struct Failing(BTreeMap<ObjectName, Failed>);

#[derive(Debug)]
struct Failed {
    /// The number of consecutive failures.
    times: u32,
    /// Whether the server was the cause, so that a success is worth a notification.
    away: bool,
    wait: RetryAt,
}

/// The event that ends the wait for the next attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RetryAt {
    /// The end of the delay.
    Time,
    /// The end of the delay, or a notification that the server has recovered.
    News,
    /// The notification; the next wait lasts for its whole delay.
    Hurried,
}

impl Failing {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records a failure; returns the number of consecutive failures.
    pub(super) fn failed(&mut self, name: &ObjectName, about: About) -> u32 {
        let failed = self.0.entry(name.clone()).or_insert(Failed { times: 0, away: false, wait: RetryAt::Time });
        let server = about == About::Server;
        failed.times = failed.times.saturating_add(1);
        failed.away |= server;
        failed.wait = if server && failed.wait != RetryAt::Hurried { RetryAt::News } else { RetryAt::Time };
        failed.times
    }

    /// Removes a Secret after an answer, or because it was dropped. Returns `true` if the answer shows that the server
    /// has recovered.
    pub(super) fn remove(&mut self, name: &ObjectName) -> bool {
        self.0.remove(name).is_some_and(|failed| failed.away)
    }

    /// The server has recovered: returns the Secrets that need not wait for their delay.
    pub(super) fn hurry(&mut self) -> Vec<ObjectName> {
        let hearing = self.0.iter_mut().filter(|(_, failed)| failed.wait == RetryAt::News);
        let hurried = hearing.map(|(name, failed)| {
            failed.wait = RetryAt::Hurried;
            name.clone()
        });
        hurried.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One Secret fails repeatedly, and after each failure a recovery of the server is notified.
    #[track_caller]
    fn check(failures: &[About], hurried: &[bool], news: bool) {
        let (mut failing, name) = (Failing::default(), ObjectName::new("shop", "a"));
        for (times, (about, hurried)) in (1..).zip(failures.iter().zip(hurried)) {
            assert_eq!(failing.failed(&name, *about), times);
            assert_eq!(failing.hurry() == [name.clone()], *hurried, "failure {times}");
            assert_eq!(failing.hurry(), [], "that is heard once");
        }
        assert_eq!(failing.remove(&name), news);
        assert!(failing.is_empty() && !failing.remove(&name));
    }

    #[test]
    fn one_of_two_consecutive_waits_ends_early() {
        check(&[About::Server; 5], &[true, false, true, false, true], true);
        check(&[About::Request; 3], &[false; 3], false);
        check(&[About::Version], &[false], false);
        check(&[About::Server, About::Request, About::Server], &[true, false, true], true);
        check(&[About::Request, About::Server], &[false, true], true);
    }
}
