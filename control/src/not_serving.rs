//! The compiled routes of the cluster that do not serve, with the reasons, for status requests.

use std::fmt;
use std::time::SystemTime;

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use tidegate_config::model::Generation;
use tidegate_config::object::{Kind, ObjectRef};

use crate::command::Command;
use crate::compile::Unit;

/// The routes that do not serve.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NotServing {
    /// The hold of an operator, which replaces all of them.
    pub held: Option<ByCommand>,
    /// The hosts and streams whose new routes wait for their backends.
    pub waits: Vec<Wait>,
}

/// Routes that an operator holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ByCommand {
    /// The command.
    pub command: Command,
    /// The generation whose routes serve.
    pub generation: Generation,
    /// The time of the command.
    #[serde(serialize_with = "as_text")]
    pub since: SystemTime,
}

/// The reason why the next routes of a host, or of a stream, wait.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Wait {
    /// The host, or the stream of its connections.
    pub unit: Unit,
    /// The deadline of the wait.
    #[serde(serialize_with = "as_text")]
    pub until: SystemTime,
    /// The awaited objects, or Services whose endpoints or addresses are awaited.
    pub awaited: Vec<ObjectRef>,
}

impl fmt::Display for ByCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, generation, since } = self;
        match command {
            Command::Rollback(_) => write!(f, "rolled back to generation {generation}")?,
            Command::Freeze | Command::Thaw => write!(f, "frozen at generation {generation}")?,
        }
        write!(f, " since {}, regardless of the cluster's routes", text(*since))
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unchanged until {} at the latest, waiting for ", text(self.until))?;
        for (number, object) in self.awaited.iter().enumerate() {
            write!(f, "{}{object}", if number > 0 { ", " } else { "" })?;
            if object.kind == Kind::Service {
                f.write_str(" or its endpoints")?;
            }
        }
        Ok(())
    }
}

/// The time in RFC 3339, to the millisecond.
pub(crate) fn text(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let time = i64::try_from(since.as_millis()).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map(|time| format!("{time:.3}")).unwrap_or_default()
}

/// Serializes a time as its text.
pub(crate) fn as_text<S: serde::Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text(*time))
}

#[cfg(test)]
mod tests {
    use tidegate_config::model::HostPattern;

    use std::time::Duration;

    use tidegate_config::object::ObjectName;

    use super::*;

    const THEN: SystemTime = SystemTime::UNIX_EPOCH;

    #[track_caller]
    fn check(shown: &impl fmt::Display, want: &str) {
        assert_eq!(shown.to_string(), want);
    }

    #[test]
    fn routes_that_do_not_serve_have_a_reason() {
        let since = THEN + Duration::from_millis(1_790_000_000_500);
        let held = |command| ByCommand { command, generation: Generation(41), since };
        let cluster = "since 2026-09-21T14:13:20.500Z, regardless of the cluster's routes";
        check(&held(Command::Freeze), &format!("frozen at generation 41 {cluster}"));
        check(&held(Command::Rollback(Generation(41))), &format!("rolled back to generation 41 {cluster}"));
        let awaited = [(Kind::Service, "cart"), (Kind::Secret, "tls")];
        let awaited = awaited.map(|(kind, name)| ObjectRef::new(kind, ObjectName::new("shop", name))).into();
        let unit = Unit::Host(HostPattern::Exact("a.test".into()).into());
        let wait = Wait { unit, until: THEN, awaited };
        let want = "unchanged until 1970-01-01T00:00:00.000Z at the latest, waiting for Service shop/cart or its endpoints, \
                    Secret shop/tls";
        check(&wait, want);
    }
}
