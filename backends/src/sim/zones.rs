//! Write pointers of a host-managed disk (ZBC: sequential write required zones), and what they forbid.

use std::ops::Range;

use super::SECTOR;
use super::profile::Zones;

/// Why a command was refused; the names are those of ZBC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneError {
    /// UNALIGNED WRITE COMMAND: not at the write pointer.
    UnalignedWrite,
    /// WRITE BOUNDARY VIOLATION: across the end of a zone.
    WriteBoundary,
    /// A write to a full zone.
    ZoneFull,
    /// ATTEMPT TO READ INVALID DATA: beyond the write pointer.
    ReadBeyondPointer,
    /// READ BOUNDARY VIOLATION: across the end of a zone.
    ReadBoundary,
    /// Not the first byte of a zone, or the disk has none.
    NotAZone,
}

/// The write pointers.
#[derive(Debug)]
pub(super) struct WritePointers {
    zones: Zones,
    /// By zone: bytes written.
    written: Vec<u64>,
}

impl WritePointers {
    pub(super) fn new(zones: Zones, capacity: u64) -> Self {
        Self { zones, written: vec![0; (capacity / zones.size) as usize] }
    }

    /// Checks a write and moves the pointer.
    pub(super) fn write(&mut self, at: u64, len: u64) -> Result<(), ZoneError> {
        let size = self.zones.size;
        let zone = (at / size) as usize;
        let written = self.written.get(zone).copied().ok_or(ZoneError::NotAZone)?;
        if written == size {
            return Err(ZoneError::ZoneFull);
        }
        if at % size + len > size {
            return Err(ZoneError::WriteBoundary);
        }
        if at % size != written || !len.is_multiple_of(SECTOR) {
            return Err(ZoneError::UnalignedWrite);
        }
        self.written[zone] = written + len;
        Ok(())
    }

    /// Checks a read.
    pub(super) fn check_read(&self, at: u64, len: u64) -> Result<(), ZoneError> {
        let size = self.zones.size;
        let written = self.written.get((at / size) as usize).ok_or(ZoneError::NotAZone)?;
        if at % size + len > size {
            return Err(ZoneError::ReadBoundary);
        }
        if at % size + len > *written { Err(ZoneError::ReadBeyondPointer) } else { Ok(()) }
    }

    /// Empties the zone that begins at `at`.
    pub(super) fn reset(&mut self, at: u64) -> Result<Range<u64>, ZoneError> {
        let size = self.zones.size;
        let zone = (at / size) as usize;
        if !at.is_multiple_of(size) || zone >= self.written.len() {
            return Err(ZoneError::NotAZone);
        }
        self.written[zone] = 0;
        Ok(at..at + size)
    }

    /// Where the next write of the zone with this byte must start; `None` if it is full.
    pub(super) fn pointer(&self, at: u64) -> Option<u64> {
        let zone = at / self.zones.size;
        let written = *self.written.get(zone as usize)?;
        (written < self.zones.size).then_some(zone * self.zones.size + written)
    }

    /// After a power cut: every pointer goes back to the end of what is on the platter without a hole.
    pub(super) fn fall_back(&mut self, there: impl Fn(u64) -> bool) {
        let size = self.zones.size;
        for (zone, written) in self.written.iter_mut().enumerate().filter(|(_, written)| **written > 0) {
            let first = zone as u64 * size / SECTOR;
            let kept = (0..*written / SECTOR).take_while(|sector| there(first + sector)).count();
            *written = kept as u64 * SECTOR;
        }
    }
}
