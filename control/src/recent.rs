//! Recent values of which many are equal, to share them.

use std::collections::VecDeque;
use std::sync::Arc;

/// The number of values that are kept.
const KEPT_MAX: usize = 16;

/// The most recent distinct values.
#[derive(Debug)]
pub(crate) struct Recent<T: ?Sized>(VecDeque<Arc<T>>);

impl<T: ?Sized> Default for Recent<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: ?Sized + Eq> Recent<T> {
    /// Replaces a value with an equal one, if there is one, and otherwise keeps it for those that follow.
    pub(crate) fn share(&mut self, value: &mut Arc<T>) {
        match self.0.iter().find(|kept| *kept == value) {
            Some(kept) => *value = Arc::clone(kept),
            None => {
                self.0.truncate(KEPT_MAX - 1);
                self.0.push_front(Arc::clone(value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_among_the_recent_ones_are_shared() {
        let mut recent = Recent::default();
        let mut share = |value: &str| {
            let mut value: Arc<str> = value.into();
            recent.share(&mut value);
            value
        };
        let first = share("a");
        assert!(Arc::ptr_eq(&first, &share("a")));
        (0..KEPT_MAX).for_each(|number| drop(share(&number.to_string())));
        assert!(!Arc::ptr_eq(&first, &share("a")), "it was not recent");
    }
}
