//! About which objects something else is found than before, and what there is to tell of one.

use tidegate_config::finding::Finding;
use tidegate_config::object::{ObjectRef, Uid};

use super::Reconciler;

/// Findings that are told of one object; more stand on the debug page alone. It is what client-go's filter lets through of
/// one object at once.
const TOLD_MAX: usize = 25;

/// Objects about which something else is found than was told.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChangedFindings {
    /// All about which anything is found, in a look at all of them.
    pub all: Vec<ObjectRef>,
    /// Those about which something else is found since a moment ago. It may be nothing any more.
    pub changed: Vec<ObjectRef>,
}

/// What there is to tell of one object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObjectFindings {
    /// Which object of that name it is; `None` when there is none, or nobody knows.
    pub uid: Option<Uid>,
    /// What is found about it, each thing once.
    pub findings: Vec<Finding>,
}

impl Reconciler {
    /// What there is to tell of an object. `None` until every kind has been listed that is not denied in another namespace.
    #[must_use]
    pub fn standing(&self, object: &ObjectRef) -> Option<ObjectFindings> {
        self.knows_all_of(&object.name.namespace).then(|| {
            let mut findings: Vec<Finding> = Vec::new();
            for finding in self.compiled.findings.about(object) {
                if findings.len() == TOLD_MAX {
                    break;
                }
                if !findings.contains(finding) {
                    findings.push(finding.clone());
                }
            }
            ObjectFindings { uid: self.world.uid_of(object), findings }
        })
    }

    /// About which objects something else is found since this was last asked.
    pub fn found(&mut self) -> ChangedFindings {
        let moved = self.compiled.findings.take_moved();
        let told = std::mem::replace(&mut self.reporting.told, true);
        if !self.options.events || !self.complete() {
            self.reporting.told = false;
            return ChangedFindings::default();
        }
        let known = |object: &&ObjectRef| self.knows_all_of(&object.name.namespace);
        if told {
            ChangedFindings { changed: moved.iter().filter(known).cloned().collect(), ..ChangedFindings::default() }
        } else {
            ChangedFindings {
                all: self.compiled.findings.objects().filter(known).cloned().collect(),
                ..ChangedFindings::default()
            }
        }
    }
}
