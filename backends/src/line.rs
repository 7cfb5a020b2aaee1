//! A waiting line in front of a limited number of places.

use std::collections::VecDeque;

use crate::job::Job;
use crate::ledger::Key;

/// Jobs of which only some may run at once, in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Line {
    waiting: VecDeque<(Key, Job)>,
    running: usize,
}

impl Line {
    /// One more waits.
    pub(crate) fn push(&mut self, key: Key, job: Job) {
        self.waiting.push_back((key, job));
    }

    /// The longest waiting one, which runs from now on; `None` if none waits or `limit` run.
    pub(crate) fn next(&mut self, limit: usize) -> Option<(Key, Job)> {
        let next = if self.running < limit { self.waiting.pop_front() } else { None };
        self.running += usize::from(next.is_some());
        next
    }

    /// One that ran waits again, before all others.
    pub(crate) fn put_back(&mut self, key: Key, job: Job) {
        self.finished();
        self.waiting.push_front((key, job));
    }

    /// One that ran has ended.
    pub(crate) const fn finished(&mut self) {
        self.running -= 1;
    }

    /// How many could begin now.
    pub(crate) fn ready(&self, limit: usize) -> usize {
        self.waiting.len().min(limit.saturating_sub(self.running))
    }

    /// Drops those that wait.
    pub(crate) fn clear(&mut self) -> impl Iterator<Item = Key> {
        self.waiting.drain(..).map(|(key, _)| key)
    }
}
