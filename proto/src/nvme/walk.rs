//! One thing done to all volumes of a subsystem, one after the other: Flush of all namespaces, the write cache switch, and
//! the flush that makes a shutdown a normal one.

use platter_block::{BufPool, Op, Status as OpStatus};

use super::config::NamespaceConfig;
use super::status::Status;
use super::target::Target;
use super::task::{Next, Outcome, Work};
use crate::slab::Key;

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Errand {
    /// Flush with NSID FFFFFFFFh (VWC.FNVMC 11b).
    Flush,
    /// Set Features, Volatile Write Cache.
    WriteCache { enabled: bool },
    /// CC.SHN: nothing stops it, but a flush that fails is told by CSTS.CFS.
    Shutdown,
}

/// An errand under way.
#[derive(Debug)]
pub(super) struct Walk {
    errand: Errand,
    /// NSID of the last namespace that was visited.
    at: u32,
}

impl Walk {
    pub(super) const fn new(errand: Errand) -> Self {
        Self { errand, at: 0 }
    }
}

impl Errand {
    fn op(self, namespace: &NamespaceConfig) -> Option<Op> {
        let info = &namespace.info;
        match self {
            Self::Flush => Some(Op::Flush),
            Self::WriteCache { enabled } => info.write_cache_changeable.then_some(Op::SetWriteCache { enabled }),
            Self::Shutdown => info.write_cache.then_some(Op::Flush),
        }
    }
}

impl Target {
    /// Goes to the next volume.
    pub(super) fn walk(&mut self, key: Key, mut walk: Walk) -> Outcome {
        let controller = self.controller_of(key);
        let portal = controller.portal.number;
        let subsystem = controller.subsystem.and_then(|s| self.subsystems.get(s));
        while let Some(subsystem) = subsystem
            && let Some((&nsid, namespace)) = subsystem.namespaces.range(walk.at + 1..).next()
        {
            walk.at = nsid;
            if walk.errand == Errand::Flush {
                subsystem.medium(nsid, portal)?;
            }
            if let Some(op) = walk.errand.op(namespace) {
                return Ok(Next::Submit { volume: namespace.volume, op, then: Work::Walk(walk) });
            }
        }
        if walk.errand == Errand::Shutdown {
            self.controller_of_mut(key).properties.shut_down();
        }
        Ok(Next::SUCCESS)
    }

    /// An op of a walk did not end well.
    pub(super) fn walk_failed(&mut self, key: Key, walk: Walk, status: OpStatus, pool: &mut BufPool) {
        if walk.errand != Errand::Shutdown {
            return self.end(key, Status::of(status, false), 0, None, pool);
        }
        self.controller_of_mut(key).properties.failed();
        let outcome = self.walk(key, walk);
        self.apply(key, outcome, pool);
    }
}
