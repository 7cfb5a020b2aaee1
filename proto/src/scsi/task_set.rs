//! Which tasks of one logical unit may run: simple, ordered and head of queue tasks (SAM-5 8.5 to 8.7).
//!
//! Rules
//! * T1 A head of queue task starts at once.
//! * T2 An ordered task starts when no older task and no head of queue task is left.
//! * T3 A simple task starts when no older ordered task and no head of queue task is left.

use super::command::Attribute;

/// Tasks that one logical unit holds at most, running and waiting. The next one is answered TASK SET FULL.
pub const MAX_TASKS: usize = 1024;

/// The task set of one logical unit. Pure: it names tasks by numbers that its user chose.
#[derive(Debug, Default)]
pub struct TaskSet {
    /// In order of arrival.
    tasks: Vec<Entry>,
    waiting: usize,
    heads: usize,
    ordered: usize,
}

/// How a task entered the set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entered {
    /// It may start now.
    Started,
    /// It starts when [`TaskSet::leave`] names it.
    Waiting,
    /// [`MAX_TASKS`] are there already: it did not enter and is answered TASK SET FULL.
    Full,
}

impl TaskSet {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// A task arrives. `id` is not in the set.
    pub fn enter(&mut self, id: u64, attribute: Attribute) -> Entered {
        debug_assert!(self.tasks.iter().all(|t| t.id != id), "task {id} entered twice");
        if self.tasks.len() == MAX_TASKS {
            return Entered::Full;
        }
        let kind = Kind::of(attribute);
        let running = match kind {
            Kind::Head => true,
            Kind::Ordered => self.tasks.is_empty(),
            Kind::Simple => self.heads == 0 && self.ordered == 0,
        };
        self.count(kind, 1);
        self.waiting += usize::from(!running);
        self.tasks.push(Entry { id, kind, running });
        if running { Entered::Started } else { Entered::Waiting }
    }

    /// A task ended or was aborted, running or not; unknown ids are ignored. Pushes those that may start now, oldest first.
    pub fn leave(&mut self, id: u64, started: &mut Vec<u64>) {
        let Some(at) = self.tasks.iter().position(|t| t.id == id) else { return };
        let gone = self.tasks.remove(at);
        self.count(gone.kind, -1);
        self.waiting -= usize::from(!gone.running);
        if self.waiting == 0 || self.heads > 0 {
            return;
        }
        let mut older_ordered = false;
        for (older, task) in self.tasks.iter_mut().enumerate() {
            let may_run = match task.kind {
                Kind::Head => true,
                Kind::Ordered => older == 0,
                Kind::Simple => !older_ordered,
            };
            if may_run && !task.running {
                task.running = true;
                self.waiting -= 1;
                started.push(task.id);
            }
            older_ordered |= task.kind == Kind::Ordered;
        }
    }

    /// Tasks in the set, running and waiting.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether no task is there.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    fn count(&mut self, kind: Kind, by: isize) {
        match kind {
            Kind::Head => self.heads = self.heads.wrapping_add_signed(by),
            Kind::Ordered => self.ordered = self.ordered.wrapping_add_signed(by),
            Kind::Simple => {}
        }
    }
}

#[derive(Debug)]
struct Entry {
    id: u64,
    kind: Kind,
    running: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Simple,
    Ordered,
    Head,
}

impl Kind {
    const fn of(attribute: Attribute) -> Self {
        match attribute {
            Attribute::Untagged | Attribute::Simple | Attribute::Aca => Self::Simple,
            Attribute::Ordered => Self::Ordered,
            Attribute::HeadOfQueue => Self::Head,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leave(set: &mut TaskSet, id: u64) -> Vec<u64> {
        let mut started = Vec::new();
        set.leave(id, &mut started);
        started
    }

    #[test]
    fn simple_tasks_run_together() {
        let mut set = TaskSet::new();
        assert!((0..100).all(|id| set.enter(id, Attribute::Simple) == Entered::Started));
        assert_eq!(leave(&mut set, 50), []);
        assert_eq!(set.len(), 99);
    }

    #[test]
    fn an_ordered_task_waits_for_all_older_and_holds_back_all_younger() {
        let mut set = TaskSet::new();
        set.enter(1, Attribute::Simple);
        set.enter(2, Attribute::Untagged);
        assert_eq!(set.enter(3, Attribute::Ordered), Entered::Waiting);
        assert_eq!(set.enter(4, Attribute::Simple), Entered::Waiting);
        assert_eq!(set.enter(5, Attribute::Ordered), Entered::Waiting);
        assert_eq!(set.enter(6, Attribute::Simple), Entered::Waiting);
        assert_eq!(leave(&mut set, 2), []);
        assert_eq!(leave(&mut set, 1), [3]);
        assert_eq!(leave(&mut set, 3), [4]);
        assert_eq!(leave(&mut set, 4), [5]);
        assert_eq!(leave(&mut set, 5), [6]);
    }

    #[test]
    fn a_head_of_queue_task_starts_at_once_and_holds_back_what_has_not_started() {
        let mut set = TaskSet::new();
        set.enter(1, Attribute::Simple);
        set.enter(2, Attribute::Ordered);
        assert_eq!(set.enter(3, Attribute::HeadOfQueue), Entered::Started);
        assert_eq!(set.enter(4, Attribute::HeadOfQueue), Entered::Started);
        assert_eq!(leave(&mut set, 1), []);
        assert_eq!(leave(&mut set, 3), []);
        assert_eq!(leave(&mut set, 4), [2]);
    }

    #[test]
    fn an_aborted_waiter_frees_those_behind_it() {
        let mut set = TaskSet::new();
        set.enter(1, Attribute::Simple);
        set.enter(2, Attribute::Ordered);
        set.enter(3, Attribute::Simple);
        assert_eq!(leave(&mut set, 2), [3]);
        assert_eq!(leave(&mut set, 99), [], "unknown");
    }

    #[test]
    fn a_full_set_takes_no_more_until_one_leaves() {
        let mut set = TaskSet::new();
        for id in 0..MAX_TASKS as u64 {
            assert_eq!(set.enter(id, Attribute::Simple), Entered::Started);
        }
        assert_eq!(set.enter(9999, Attribute::HeadOfQueue), Entered::Full);
        leave(&mut set, 0);
        assert_eq!(set.enter(9999, Attribute::HeadOfQueue), Entered::Started);
    }
}
