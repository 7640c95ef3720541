//! The journal of recent publications. Routes and endpoints have separate entries: endpoints change all the time, and
//! must not displace the entries of routes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::changes::{Changes, Coalesced, Publication};
use crate::compile::{ChangedUnits, Unit};
use crate::sample::Sample;

/// The time within which later changes of a Service's endpoints are added to its entry.
const COALESCED_WITHIN: Duration = Duration::from_secs(60);

/// The Service of an entry; `None` for more changes than are recorded.
type ServiceOfEntry = Option<Unit>;

/// Past publications, limited in number.
#[derive(Debug)]
pub(super) struct Journal {
    /// The maximum number of entries of each of the two lists.
    entries_max: usize,
    /// Publications that changed routes, and those caused by an operator or by drift.
    routes: VecDeque<Publication>,
    /// Publications that changed only endpoints, ordered by their first one.
    endpoints: VecDeque<Publication>,
    /// The latest entry in `endpoints` of each Service, as a number among all that ever existed.
    latest: BTreeMap<ServiceOfEntry, usize>,
    /// The number of removed entries of endpoints, which is the number of the first remaining one.
    forgotten: usize,
}

impl Journal {
    pub(super) fn new(entries_max: usize) -> Self {
        let (routes, endpoints, latest) = (VecDeque::new(), VecDeque::new(), BTreeMap::new());
        Self { entries_max, routes, endpoints, latest, forgotten: 0 }
    }

    pub(super) fn record(&mut self, publication: Publication) {
        if publication.changes.units.routes() || publication.changes.whole() {
            self.routes.push_back(publication);
            while self.routes.len() > self.entries_max {
                self.routes.pop_front();
            }
            return;
        }
        let Sample { first, total } = &publication.changes.units.endpoints;
        if *total > first.len() {
            self.coalesce(None, publication);
            return;
        }
        for unit in first {
            let endpoints = Sample { first: vec![unit.clone()], total: 1 };
            let units = ChangedUnits { endpoints, ..ChangedUnits::default() };
            let changes = Changes { causes: publication.changes.causes.clone(), units };
            self.coalesce(Some(unit.clone()), Publication { changes, ..publication });
        }
    }

    /// The latest `last` entries, the newest last; with a host, those that may have changed it.
    pub(super) fn latest(&self, last: usize, host: Option<&str>) -> Vec<Publication> {
        let concerns = |publication: &&Publication| {
            let Sample { first, total } = &publication.changes.units.routing;
            let is = |host: &str, unit: &Unit| matches!(unit, Unit::Host(pattern) if pattern.to_string() == host);
            host.is_none_or(|host| *total > first.len() || first.iter().any(|unit| is(host, unit)))
        };
        let mut entries: Vec<&Publication> = self.routes.iter().chain(&self.endpoints).filter(concerns).collect();
        entries.sort_by_key(|entry| entry.generation);
        let skipped = entries.len().saturating_sub(last);
        entries.into_iter().skip(skipped).cloned().collect()
    }

    /// Records changes of a Service's endpoints, in its recent entry if there is one.
    fn coalesce(&mut self, whose: ServiceOfEntry, publication: Publication) {
        let number = self.latest.get(&whose).map(|number| number - self.forgotten);
        if let Some(entry) = number.and_then(|number| self.endpoints.get_mut(number)).filter(|entry| {
            let since = entry.coalesced.map_or(entry.at, |coalesced| coalesced.since);
            let within = publication.at.duration_since(since).is_ok_and(|age| age < COALESCED_WITHIN);
            within && entry.held == publication.held
        }) {
            let first = Coalesced { first: entry.generation, since: entry.at, publications: 1 };
            entry.coalesced.get_or_insert(first).publications += 1;
            (entry.generation, entry.at) = (publication.generation, publication.at);
            entry.changes.units.endpoints.total =
                entry.changes.units.endpoints.total.max(publication.changes.units.endpoints.total);
            entry.changes.causes.note_all(publication.changes.causes);
            return;
        }
        self.latest.insert(whose, self.forgotten + self.endpoints.len());
        self.endpoints.push_back(publication);
        while self.endpoints.len() > self.entries_max {
            self.forget();
        }
    }

    fn forget(&mut self) {
        let Some(Publication { changes, .. }) = self.endpoints.pop_front() else { return };
        let Sample { first, total } = changes.units.endpoints;
        let whose = if total > first.len() { None } else { first.into_iter().next() };
        if self.latest.get(&whose) == Some(&self.forgotten) {
            self.latest.remove(&whose);
        }
        self.forgotten += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use tidegate_config::model::{Generation, HostPattern};
    use tidegate_config::object::ObjectName;

    use super::*;
    use crate::command::Command;
    use crate::history::Cause;

    /// A publication at this second, which is also its generation.
    fn publication(second: u64, changes: Changes) -> Publication {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        Publication { generation: Generation(second), at, changes, held: None, coalesced: None }
    }

    fn of_host(name: &str) -> Changes {
        let mut changes = Changes::default();
        changes.units.add(Unit::Host(HostPattern::Exact(name.into()).into()));
        changes
    }

    fn of_services<'n>(names: impl IntoIterator<Item = &'n str>) -> Changes {
        let mut changes = Changes::default();
        for name in names {
            changes.units.add(Unit::Service(ObjectName::new("shop", name)));
            changes.causes.note(Cause::Released { service: ObjectName::new("shop", name) });
        }
        changes
    }

    /// Entries as `generation`, or `first..generation xN` for several, with their Service.
    #[track_caller]
    fn check(journal: &Journal, want: &[&str]) {
        let text = |entry: &Publication| {
            let whose = entry.changes.units.endpoints.first.first().map(|unit| match unit {
                Unit::Service(service) => format!(" {}", service.name),
                other @ (Unit::Policies(_)
                | Unit::Object(_)
                | Unit::Bind(_)
                | Unit::Host(_)
                | Unit::Stream(_)
                | Unit::Scope(_)
                | Unit::Globals(())) => format!(" {other}"),
            });
            let whose = whose.unwrap_or_default();
            match entry.coalesced {
                None => format!("{}{whose}", entry.generation),
                Some(Coalesced { first, publications, .. }) => {
                    format!("{first}..{} x{publications}{whose}", entry.generation)
                }
            }
        };
        let entries: Vec<String> = journal.latest(usize::MAX, None).iter().map(text).collect();
        assert_eq!(entries, want);
    }

    #[test]
    fn endpoint_changes_displace_no_routes_or_commands() {
        let mut journal = Journal::new(3);
        journal.record(publication(1, of_host("a")));
        let mut rollback = of_services(["cart"]);
        rollback.causes.first.insert(0, Cause::Commanded { command: Command::Rollback(Generation(1)) });
        journal.record(publication(2, rollback));
        for minute in 1..=100 {
            journal.record(publication(minute * 60, of_services(["web"])));
        }
        check(&journal, &["1", "2 cart", "5880 web", "5940 web", "6000 web"]);
        for second in 6001..=6004 {
            journal.record(publication(second, of_host("b")));
        }
        check(&journal, &["5880 web", "5940 web", "6000 web", "6002", "6003", "6004"]);
    }

    #[test]
    fn endpoint_changes_of_a_service_share_an_entry_for_a_minute() {
        let mut journal = Journal::new(100);
        for second in 0..=61 {
            journal.record(publication(second, of_services([["cart", "web"][second as usize % 2]])));
        }
        check(&journal, &["0..58 x30 cart", "1..59 x30 web", "60 cart", "61 web"]);
        let causes = &journal.latest(usize::MAX, None)[0].changes.causes;
        assert_eq!((causes.first.len(), causes.total), (8, 30));
    }

    #[test]
    fn a_batch_is_recorded_by_service_or_as_one_entry() {
        let mut journal = Journal::new(100);
        journal.record(publication(1, of_services(["a", "b"])));
        journal.record(publication(2, of_services(["b", "c"])));
        check(&journal, &["1 a", "1..2 x2 b", "2 c"]);
        let many = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        journal.record(publication(3, of_services(many)));
        journal.record(publication(4, of_services(many)));
        check(&journal, &["1 a", "1..2 x2 b", "2 c", "3..4 x2 a"]);
        assert_eq!(journal.latest(1, None)[0].changes.units.endpoints.total, 9);
    }

    #[test]
    fn a_hold_or_a_clock_set_back_begins_a_new_entry() {
        let mut journal = Journal::new(100);
        journal.record(publication(5, of_services(["a"])));
        let held = Some(Generation(5));
        journal.record(Publication { held, ..publication(6, of_services(["a"])) });
        journal.record(Publication { held, ..publication(7, of_services(["a"])) });
        let at = SystemTime::UNIX_EPOCH;
        journal.record(Publication { held, at, ..publication(8, of_services(["a"])) });
        check(&journal, &["5 a", "6..7 x2 a", "8 a"]);
    }

    #[test]
    fn dropped_entries_absorb_nothing() {
        let mut journal = Journal::new(2);
        for (second, service) in (1..).zip(["a", "b", "c", "a", "c", "b"]) {
            journal.record(publication(second, of_services([service])));
        }
        check(&journal, &["4 a", "6 b"]);
        assert_eq!((journal.latest.len(), journal.forgotten), (2, 3));
    }

    #[test]
    fn the_publications_of_a_host_are_found() {
        let mut journal = Journal::new(100);
        journal.record(publication(1, of_host("a")));
        journal.record(publication(2, of_services(["cart"])));
        journal.record(publication(3, of_host("b")));
        journal.record(publication(4, of_host("a")));
        let mut many = of_host("c");
        (0..9).for_each(|_| many.units.add(Unit::Host(HostPattern::Exact("d".into()).into())));
        journal.record(publication(5, many));
        let latest = |last, host: Option<&str>| -> Vec<u64> {
            journal.latest(last, host).iter().map(|publication| publication.generation.0).collect()
        };
        assert_eq!(latest(9, None), [1, 2, 3, 4, 5]);
        assert_eq!(latest(2, None), [4, 5]);
        assert_eq!(latest(9, Some("a")), [1, 4, 5], "the fifth may have changed it");
        assert_eq!(latest(2, Some("a")), [4, 5]);
        assert_eq!(latest(9, Some("b")), [3, 5]);
    }
}
