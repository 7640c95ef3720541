//! The Secrets by name that could not be read when they were last asked for: how often in a row, and for which of them it is
//! news that the server has recovered. Pure; what is said of the pauses of an informer holds here as well.

use std::collections::BTreeMap;

use tidegate_config::object::ObjectName;

use super::super::failure::About;

/// Those that fail.
#[derive(Debug, Default)]
pub(super) struct Failing(BTreeMap<ObjectName, Failed>);

#[derive(Debug)]
struct Failed {
    /// How often in a row.
    times: u32,
    /// Whether it failed in a way that others will want to know the end of.
    away: bool,
    wait: Wait,
}

/// What ends the wait for the next try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wait {
    /// Its time.
    Time,
    /// Its time, or the news that the server has recovered.
    News,
    /// The news did; the wait after this one is as long as it is.
    Hurried,
}

impl Failing {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One has failed; gives how often in a row.
    pub(super) fn failed(&mut self, name: &ObjectName, about: About) -> u32 {
        let failed = self.0.entry(name.clone()).or_insert(Failed { times: 0, away: false, wait: Wait::Time });
        let server = about == About::Server;
        failed.times = failed.times.saturating_add(1);
        failed.away |= server;
        failed.wait = if server && failed.wait != Wait::Hurried { Wait::News } else { Wait::Time };
        failed.times
    }

    /// One was answered, or is forgotten. Gives whether its answer is news of the server.
    pub(super) fn remove(&mut self, name: &ObjectName) -> bool {
        self.0.remove(name).is_some_and(|failed| failed.away)
    }

    /// The server has recovered: those that need not wait for their time.
    pub(super) fn hurry(&mut self) -> Vec<ObjectName> {
        let hearing = self.0.iter_mut().filter(|(_, failed)| failed.wait == Wait::News);
        let hurried = hearing.map(|(name, failed)| {
            failed.wait = Wait::Hurried;
            name.clone()
        });
        hurried.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One fails so, again and again, and after each failure the server is said to have recovered.
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
    fn of_two_waits_in_a_row_one_ends_before_its_time() {
        check(&[About::Server; 5], &[true, false, true, false, true], true);
        check(&[About::Request; 3], &[false; 3], false);
        check(&[About::Version], &[false], false);
        check(&[About::Server, About::Request, About::Server], &[true, false, true], true);
        check(&[About::Request, About::Server], &[false, true], true);
    }
}
