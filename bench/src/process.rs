//! A process with all its children: one group, which ends with this process.

use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::clock::pause;
use crate::cores::Share;

/// The maximum time for a process to end after a signal: it drains before it does.
const TERMINATE_MAX: Duration = Duration::from_secs(30);

/// A process group, whether its first process still runs or not; killed when dropped.
#[derive(Debug)]
pub(crate) struct Group {
    /// Its first process.
    pub(crate) child: Child,
    group: Pid,
}

impl Group {
    /// Starts a command on its cores.
    ///
    /// # Errors
    /// When it cannot be run.
    pub(crate) fn spawn(command: &mut Command, share: Share) -> anyhow::Result<Self> {
        let program = command.as_std().get_program().to_owned();
        let child = share.spawn(command.process_group(0).kill_on_drop(true));
        let child = child.with_context(|| format!("{} cannot be run", program.display()))?;
        let group = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).context("it has no id")?;
        Ok(Self { child, group })
    }

    /// Asks them to end, and returns when the first one has.
    ///
    /// # Errors
    /// When it does not end.
    pub(crate) async fn terminate(&mut self) -> anyhow::Result<()> {
        kill_process_group(self.group, Signal::TERM)?;
        timeout(TERMINATE_MAX, self.child.wait()).await.context("it does not end")??;
        Ok(())
    }

    /// Kills them, and returns when they are gone: no socket listens any more, and no file is written. Processes with
    /// much memory take a while.
    pub(crate) fn end(&mut self) {
        for _ in 0..4000 {
            // The kernel refuses this if no process is left. The first one stays until it has been waited for.
            drop(self.child.try_wait());
            if kill_process_group(self.group, Signal::KILL).is_err() {
                return;
            }
            pause(Duration::from_millis(5));
        }
        eprintln!("processes of group {:?} do not end", self.group);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns `true` if a process is gone, or is a zombie.
#[must_use]
pub(crate) fn is_over(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use tokio::io::{AsyncBufReadExt as _, BufReader};

    use super::*;

    #[tokio::test]
    async fn children_end_with_a_killed_process() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & echo $!; wait"]).stdout(Stdio::piped());
        let mut group = Group::spawn(&mut command, Share::ANY).unwrap();
        let mut lines = BufReader::new(group.child.stdout.take().unwrap()).lines();
        let left: u32 = lines.next_line().await.unwrap().unwrap().parse().unwrap();
        group.child.kill().await.unwrap();
        assert!(!is_over(left), "it runs on alone");
        drop(group);
        assert!(is_over(left));
    }
}
