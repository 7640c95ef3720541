//! Contests about status, by class: the metric, the log lines and the finding on the class.

use std::collections::BTreeMap;
use std::time::Instant;

use tidegate_config::finding::{Finding, Problem};
use tidegate_config::object::ObjectRef;

use super::Loop;
use crate::queue::Lane;
use crate::report_queue::Contests;

/// The contests about status.
#[derive(Debug, Default)]
pub(super) struct ClassContests {
    pub(super) objects: Contests,
    /// The classes of contested objects.
    classes: BTreeMap<ObjectRef, ClassContest>,
}

/// The contest about the objects of one class.
#[derive(Debug)]
struct ClassContest {
    /// One of the objects.
    object: ObjectRef,
    /// The other writer, if it is known.
    writer: Option<String>,
    /// Whether the contest was reported; before that, the writer is looked for.
    reported: bool,
}

impl Loop<'_> {
    /// Updates the contests after the pending status updates were taken.
    pub(super) fn report_contests(&mut self, now: Instant) {
        let ClassContests { objects, classes } = &mut self.contests;
        if !objects.take_changed(now) {
            return;
        }
        let mut contested: BTreeMap<ObjectRef, &ObjectRef> = BTreeMap::new();
        let mut count = 0;
        for object in objects.objects() {
            count += 1;
            for class in self.reconciler.model().classes_of(object) {
                contested.entry(class).or_insert(object);
            }
        }
        self.metrics.contested.set(count);
        let before = classes.len();
        classes.retain(|class, _| contested.contains_key(class));
        if classes.is_empty() && before > 0 {
            tracing::info!("no other client overwrites the status of objects any more");
        }
        for (class, object) in contested {
            let class = classes.entry(class).or_insert_with(|| ClassContest {
                object: object.clone(),
                writer: None,
                reported: false,
            });
            class.object.clone_from(object);
            if class.writer.is_none() {
                self.outputs.reports.contested.add(object.clone(), Lane::Fast);
            }
        }
        self.put_contests();
    }

    /// The status of a contested object was read: its other writer is this one, or unknown.
    pub(super) fn identified(&mut self, object: &ObjectRef, writer: Option<String>) {
        let classes = self.contests.classes.iter_mut().filter(|(_, contest)| contest.object == *object);
        for (class, contest) in classes {
            if contest.reported && contest.writer == writer {
                continue;
            }
            (contest.reported, contest.writer) = (true, writer.clone());
            tracing::warn!(
                %object,
                %class,
                writer = writer.as_deref().unwrap_or("unknown"),
                "another client keeps overwriting the status of objects that this edge serves, and repairs become rare; two edges of \
                 one class need the same --lease, or a class of their own"
            );
        }
        self.put_contests();
    }

    /// This process does not write status: the next leader observes the contests again.
    pub(super) fn drop_contests(&mut self) {
        self.contests = ClassContests::default();
        self.metrics.contested.set(0);
        self.put_contests();
    }

    fn put_contests(&mut self) {
        let reported = self.contests.classes.iter().filter(|(_, contest)| contest.reported);
        let finding = |(class, ClassContest { object, writer, .. }): (&ObjectRef, &ClassContest)| {
            let problem = Problem::StatusContested { object: object.clone(), writer: writer.clone() };
            (class.clone(), Finding::new(class.clone(), "", problem))
        };
        self.reconciler.pending_reports().put_findings_apart(reported.map(finding).collect());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use serde_json::json;
    use tidegate_config::object::{Kind, ObjectName};
    use tidegate_config::project::project;

    use super::*;
    use crate::clock;
    use crate::drive::tests::{Bed, listed};
    use crate::event::Collection;

    /// A loop with an IngressClass and an Ingress of it, and the latter.
    fn bed() -> (Bed, ObjectRef) {
        let collections = [Kind::IngressClass, Kind::Ingress].map(|kind| Collection { kind, namespace: None });
        let mut bed = Bed::new(collections.clone());
        let mut running = bed.running();
        let class = json!({"metadata": {"name": "edge", "resourceVersion": "1"}, "spec": {"controller": "tidegate.io/ingress"}});
        let ingress = json!({
            "metadata": {"namespace": "shop", "name": "web", "resourceVersion": "1"},
            "spec": {"ingressClassName": "edge", "rules": [{"host": "web.example"}]},
        });
        for (collection, object) in collections.into_iter().zip([class, ingress]) {
            let objects = vec![project(collection.kind, object.to_string().as_bytes()).unwrap()];
            running.observe(listed(collection, objects, "1"));
        }
        running.step(clock::now());
        drop(running);
        (bed, ObjectRef::new(Kind::Ingress, ObjectName::new("shop", "web")))
    }

    /// Checks the number of contested objects, and the findings about contests.
    #[track_caller]
    fn check(running: &Loop<'_>, count: i64, want: &[&str]) {
        assert_eq!(running.metrics.contested.get(), count);
        let found = running.reconciler.model().compiled().all_findings().into_iter();
        let found = found.filter(|finding| finding.problem.reason() == "StatusContested");
        assert_eq!(found.map(|finding| finding.to_string()).collect::<Vec<_>>(), want);
    }

    #[test]
    fn a_contest_is_a_finding_on_the_class_once_the_other_writer_was_looked_for() {
        let (mut bed, ingress) = bed();
        let mut running = bed.running();
        let (now, rest) = (
            clock::now(),
            "so repairs become rare; the routes are served all the same. Edges of one class need the same --lease, or a class each",
        );
        let overwrite = |running: &mut Loop<'_>| {
            running.contests.objects.overwritten(ingress.clone(), now);
            running.report_contests(now);
        };
        (0..2).for_each(|_| overwrite(&mut running));
        check(&running, 0, &[]);
        overwrite(&mut running);
        check(&running, 1, &[]);
        assert_eq!(running.outputs.reports.contested.depth(Lane::Fast), 1);
        running.identified(&ingress, None);
        let contested = |writer: &str| {
            format!("IngressClass edge: : {writer} keeps overwriting the status of Ingress shop/web, {rest}")
        };
        check(&running, 1, &[&contested("another client")]);
        running.identified(&ingress, Some("the edge with the Lease a/b".to_owned()));
        check(&running, 1, &[&contested("the edge with the Lease a/b")]);
        running.outputs.reports.wanted.store(false, Ordering::Release);
        running.queue_reports();
        check(&running, 0, &[]);
    }

    #[test]
    fn a_contest_ends_with_its_finding() {
        let (mut bed, ingress) = bed();
        let mut running = bed.running();
        let now = clock::now();
        for _ in 0..3 {
            let _delay = running.contests.objects.overwritten(ingress.clone(), now);
        }
        running.report_contests(now);
        running.identified(&ingress, Some("the client \"a\"".to_owned()));
        let found = running.reconciler.model().compiled().all_findings();
        assert!(found.iter().any(|finding| finding.problem.reason() == "StatusContested"), "{found:?}");
        running.report_contests(now + std::time::Duration::from_secs(3600));
        check(&running, 0, &[]);
    }
}
