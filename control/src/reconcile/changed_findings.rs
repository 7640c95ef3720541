//! The objects whose findings have changed, and the findings for the cluster.

use tidegate_config::finding::Finding;
use tidegate_config::object::{ObjectRef, Uid};

use super::report::{DesiredReports, PendingReports};

/// The maximum number of reported findings of one object; all of them are on the debug page. client-go's Event filter
/// allows this number at once.
const TOLD_MAX: usize = 25;

/// Objects whose findings have changed since they were reported.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChangedFindings {
    /// All objects with findings, when all must be checked.
    pub all: Vec<ObjectRef>,
    /// Objects whose findings have changed since the last call. They may have none any more.
    pub changed: Vec<ObjectRef>,
}

/// The reported findings of one object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObjectFindings {
    /// The uid of the object; `None` if it does not exist or is unknown.
    pub uid: Option<Uid>,
    /// The findings about it, each once.
    pub findings: Vec<Finding>,
}

impl DesiredReports<'_> {
    /// The findings to report about an object. `None` until every kind has been listed, except kinds denied in other
    /// namespaces.
    #[must_use]
    pub fn findings(self, object: &ObjectRef) -> Option<ObjectFindings> {
        self.listing.may_report_in(&object.name.namespace).then(|| {
            let mut findings: Vec<Finding> = Vec::new();
            for finding in self.model.compiled.findings.about(object) {
                if findings.len() == TOLD_MAX {
                    break;
                }
                if !findings.contains(finding) {
                    findings.push(finding.clone());
                }
            }
            ObjectFindings { uid: self.model.world.uid_of(object), findings }
        })
    }
}

impl PendingReports<'_> {
    /// The objects whose findings have changed since the last call.
    pub fn changed_findings(&mut self) -> ChangedFindings {
        let moved = self.model.compiled.findings.take_changed();
        let queued_all = std::mem::replace(&mut self.reporting.queued_findings, true);
        if !self.model.options.events || !self.listing.may_report() {
            self.reporting.queued_findings = false;
            return ChangedFindings::default();
        }
        let known = |object: &&ObjectRef| self.listing.may_report_in(&object.name.namespace);
        if queued_all {
            ChangedFindings { changed: moved.iter().filter(known).cloned().collect(), ..ChangedFindings::default() }
        } else {
            ChangedFindings {
                all: self.model.compiled.findings.objects().filter(known).cloned().collect(),
                ..ChangedFindings::default()
            }
        }
    }
}
