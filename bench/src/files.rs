//! How many files this process, and what it starts, may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit as far as the process may, says so, and returns what it is then; `None` is none.
pub(crate) fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => {
            eprintln!("the limit of open files is raised from {current:?} to {maximum:?}");
            maximum
        }
        Err(error) => {
            eprintln!("the limit of open files stays {current:?}: {error}");
            current
        }
    }
}
