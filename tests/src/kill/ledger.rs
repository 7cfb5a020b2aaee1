//! What each block of one session may hold.

use super::stamp;
use std::ops::Range;

/// The blocks of one session. Only that session writes them, and never twice at the same time.
#[derive(Clone, Debug)]
pub struct Ledger {
    first: u64,
    blocks: Vec<Block>,
    next_version: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// The last version that was acknowledged or, after a kill, found.
    settled: u64,
    /// A version that was sent and not acknowledged.
    in_flight: Option<u64>,
}

impl Ledger {
    /// Blocks that were never written.
    pub fn new(range: Range<u64>) -> Self {
        let len = usize::try_from(range.end - range.start).expect("the blocks fit into memory");
        Self { first: range.start, blocks: vec![Block::default(); len], next_version: 0 }
    }

    /// The block numbers.
    pub fn range(&self) -> Range<u64> {
        self.first..self.first + self.blocks.len() as u64
    }

    /// The last version of a block that was acknowledged or found.
    pub fn settled(&self, lba: u64) -> u64 {
        self.blocks[self.at(lba)].settled
    }

    /// Whether a write to one of the blocks is in flight.
    pub fn is_written(&self, range: Range<u64>) -> bool {
        range.into_iter().any(|lba| self.blocks[self.at(lba)].in_flight.is_some())
    }

    /// A new version of these blocks is about to be sent; returns it.
    pub fn send(&mut self, range: Range<u64>) -> u64 {
        self.next_version += 1;
        for lba in range {
            let at = self.at(lba);
            assert_eq!(self.blocks[at].in_flight, None, "one write at a time to block {lba}");
            self.blocks[at].in_flight = Some(self.next_version);
        }
        self.next_version
    }

    /// The write of these blocks was acknowledged.
    pub fn acknowledge(&mut self, range: Range<u64>) {
        for lba in range {
            let at = self.at(lba);
            let version = self.blocks[at].in_flight.take().expect("only what was sent is acknowledged");
            self.blocks[at].settled = version;
        }
    }

    /// Checks what was read while no write to the block was in flight.
    ///
    /// # Errors
    ///
    /// What is wrong.
    pub fn check(&self, lba: u64, bytes: &[u8]) -> Result<(), String> {
        let (found, settled) = (stamp::version(lba, bytes)?, self.settled(lba));
        if found == settled {
            return Ok(());
        }
        Err(format!("block {lba} holds version {found}, but {settled} was acknowledged last"))
    }

    /// Checks what was read after a kill, and takes it for the truth. `Some(true)` if a write was in flight and is found done,
    /// `Some(false)` if it is not.
    ///
    /// # Errors
    ///
    /// What is wrong.
    pub fn settle(&mut self, lba: u64, bytes: &[u8]) -> Result<Option<bool>, String> {
        let at = self.at(lba);
        let Block { settled, in_flight } = std::mem::take(&mut self.blocks[at]);
        let found = stamp::version(lba, bytes)?;
        self.blocks[at].settled = found;
        match in_flight {
            Some(version) if found == version => Ok(Some(true)),
            Some(_) if found == settled => Ok(Some(false)),
            None if found == settled => Ok(None),
            _ => Err(format!(
                "block {lba} holds version {found}, but {settled} was acknowledged last (in flight: {in_flight:?})"
            )),
        }
    }

    fn at(&self, lba: u64) -> usize {
        (lba - self.first) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_kill_a_block_holds_what_was_acknowledged_or_was_in_flight() {
        let mut ledger = Ledger::new(10..14);
        let first = ledger.send(10..13);
        ledger.acknowledge(10..13);
        let second = ledger.send(11..13);
        let block = |lba, version| stamp::block(lba, version).to_vec();
        assert_eq!(ledger.settle(10, &block(10, first)), Ok(None));
        assert_eq!(ledger.settle(11, &block(11, first)), Ok(Some(false)));
        assert_eq!(ledger.settle(12, &block(12, second)), Ok(Some(true)));
        assert_eq!(ledger.settle(13, &[0; stamp::BLOCK]), Ok(None));
        // Found once, it stays: the write that was not done may not land now.
        assert!(ledger.settle(11, &block(11, second)).is_err());
        assert!(ledger.settle(12, &block(12, first)).is_err());
        assert!(ledger.settle(10, &[0; stamp::BLOCK]).is_err());
    }
}
