//! The table of commands. One row is everything the device server knows about a command before it runs: where its CDB has
//! bits (which REPORT SUPPORTED OPERATION CODES reports and against which reserved bits are checked), what it needs, and
//! who handles it.
//!
//! Not in the table, and so answered INVALID COMMAND OPERATION CODE: persistent reservations, third-party copy, FORMAT
//! UNIT, SANITIZE, WRITE ATOMIC (nothing below promises that a write survives a power cut whole).

use super::cdb::Cdb;
use super::sense::{Code, Sense};
use super::task::{Call, Outcome};
use super::unit::Unit;
use super::{capacity, inquiry, medium, mode, mode_select, report, reserve, rw, same, unmap, verify};

/// One command.
pub(super) struct Row {
    pub(super) opcode: u8,
    /// SERVICE ACTION, for operation codes that have them.
    pub(super) action: Option<u8>,
    /// Name in the standard.
    pub(super) name: &'static str,
    /// CDB USAGE DATA from byte 1 on (SPC-4 6.35.3): the bits that are looked at. Bits of a service action are added to it.
    usage: &'static [u8],
    /// Bits of `usage` that count only for some units.
    only: &'static [(Needs, usize, u8)],
    needs: Needs,
    traits: u8,
    handler: fn(&mut Call<'_>) -> Outcome,
}

/// What a unit must be able to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// Deallocate blocks.
    Discard,
    /// Eject its medium.
    Removable,
}

/// Never held up: neither by unit attentions nor by reservations (SAM-5 5.14, SPC-2 5.5.1).
const EXEMPT: u8 = 1 << 0;
/// Answered by the REPORT LUNS well-known logical unit.
const WELL_KNOWN: u8 = 1 << 1;
/// Answered where no unit is.
const EMPTY: u8 = 1 << 2;
/// Answered at LUN 0 even if no unit is there.
const EMPTY_ZERO: u8 = 1 << 3;
/// Needs a loaded medium and all disks.
const MEDIUM: u8 = 1 << 4;
/// Refused on a write-protected unit.
const WRITES: u8 = 1 << 5 | MEDIUM;
/// Harmless beside the reservation of another nexus: RELEASE.
const RELEASES: u8 = 1 << 6;

const fn row(
    opcode: u8,
    name: &'static str,
    usage: &'static [u8],
    traits: u8,
    handler: fn(&mut Call<'_>) -> Outcome,
) -> Row {
    Row { opcode, action: None, name, usage, only: &[], needs: Needs::Nothing, traits, handler }
}

const fn action(action: u8, row: Row) -> Row {
    Row { action: Some(action), ..row }
}

const fn only(only: &'static [(Needs, usize, u8)], row: Row) -> Row {
    Row { only, ..row }
}

const fn needs(needs: Needs, row: Row) -> Row {
    Row { needs, ..row }
}

/// All commands, by operation code, then service action. The last byte is always CONTROL: NACA is not supported.
#[rustfmt::skip]
pub(super) static ROWS: [Row; 44] = [
    row(0x00, "TEST UNIT READY", &[0, 0, 0, 0, 0], MEDIUM | WELL_KNOWN, medium::test_unit_ready),
    row(0x03, "REQUEST SENSE", &[0x01, 0, 0, 0xff, 0], EXEMPT | WELL_KNOWN | EMPTY, report::request_sense),
    row(0x08, "READ(6)", &[0x1f, 0xff, 0xff, 0xff, 0], MEDIUM, rw::read),
    row(0x0a, "WRITE(6)", &[0x1f, 0xff, 0xff, 0xff, 0], WRITES, rw::write),
    row(0x12, "INQUIRY", &[0x01, 0xff, 0xff, 0xff, 0], EXEMPT | WELL_KNOWN | EMPTY, inquiry::inquiry),
    row(0x15, "MODE SELECT(6)", &[0x10, 0, 0, 0xff, 0], 0, mode_select::mode_select_6),
    row(0x16, "RESERVE(6)", &[0, 0, 0, 0, 0], 0, reserve::reserve),
    row(0x17, "RELEASE(6)", &[0, 0, 0, 0, 0], RELEASES, reserve::release),
    row(0x1a, "MODE SENSE(6)", &[0x08, 0xff, 0xff, 0xff, 0], 0, mode::mode_sense_6),
    only(&[(Needs::Removable, 4, 0x02)],
        row(0x1b, "START STOP UNIT", &[0x01, 0, 0, 0xf7, 0], 0, medium::start_stop_unit)),
    row(0x1e, "PREVENT ALLOW MEDIUM REMOVAL", &[0, 0, 0, 0x01, 0], 0, medium::prevent_allow),
    row(0x25, "READ CAPACITY(10)", &[0; 9], MEDIUM, capacity::read_capacity_10),
    row(0x28, "READ(10)", &[0x18, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0], MEDIUM, rw::read),
    row(0x2a, "WRITE(10)", &[0x18, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0], WRITES, rw::write),
    row(0x2e, "WRITE AND VERIFY(10)", &[0x16, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0], WRITES, verify::write_and_verify),
    row(0x2f, "VERIFY(10)", &[0x16, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0], MEDIUM, verify::verify),
    row(0x34, "PRE-FETCH(10)", &[0x02, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0], MEDIUM, rw::pre_fetch),
    row(0x35, "SYNCHRONIZE CACHE(10)", &[0x06, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0], MEDIUM, rw::synchronize_cache),
    row(0x37, "READ DEFECT DATA(10)", &[0, 0x1f, 0, 0, 0, 0, 0xff, 0xff, 0], MEDIUM, medium::read_defect_data_10),
    only(&[(Needs::Discard, 1, 0x08)],
        row(0x41, "WRITE SAME(10)", &[0x08, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0], WRITES, same::write_same)),
    needs(Needs::Discard,
        row(0x42, "UNMAP", &[0, 0, 0, 0, 0, 0x3f, 0xff, 0xff, 0], WRITES, unmap::unmap)),
    row(0x55, "MODE SELECT(10)", &[0x10, 0, 0, 0, 0, 0, 0xff, 0xff, 0], 0, mode_select::mode_select_10),
    row(0x56, "RESERVE(10)", &[0; 9], 0, reserve::reserve),
    row(0x57, "RELEASE(10)", &[0; 9], RELEASES, reserve::release),
    row(0x5a, "MODE SENSE(10)", &[0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0], 0, mode::mode_sense_10),
    row(0x88, "READ(16)", &[0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0], MEDIUM, rw::read),
    row(0x89, "COMPARE AND WRITE", &[0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0xff, 0x3f, 0], WRITES, rw::compare_and_write),
    row(0x8a, "WRITE(16)", &[0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0], WRITES, rw::write),
    row(0x8b, "ORWRITE(16)", &[0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0], WRITES, rw::or_write),
    row(0x8e, "WRITE AND VERIFY(16)", &[0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0], WRITES, verify::write_and_verify),
    row(0x8f, "VERIFY(16)", &[0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0], MEDIUM, verify::verify),
    row(0x90, "PRE-FETCH(16)", &[0x02, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0], MEDIUM, rw::pre_fetch),
    row(0x91, "SYNCHRONIZE CACHE(16)", &[0x06, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0], MEDIUM, rw::synchronize_cache),
    only(&[(Needs::Discard, 1, 0x08)],
        row(0x93, "WRITE SAME(16)", &[0x09, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0], WRITES, same::write_same)),
    action(0x10, row(0x9e, "READ CAPACITY(16)", &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0], MEDIUM, capacity::read_capacity_16)),
    action(0x12, row(0x9e, "GET LBA STATUS", &[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0], MEDIUM, capacity::get_lba_status)),
    row(0xa0, "REPORT LUNS", &[0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0], EXEMPT | WELL_KNOWN | EMPTY_ZERO, report::report_luns),
    action(0x0c, row(0xa3, "REPORT SUPPORTED OPERATION CODES", &[0, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0], 0, report::supported_opcodes)),
    action(0x0d, row(0xa3, "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS", &[0, 0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0], 0, report::supported_task_management)),
    row(0xa8, "READ(12)", &[0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0], MEDIUM, rw::read),
    row(0xaa, "WRITE(12)", &[0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0], WRITES, rw::write),
    row(0xae, "WRITE AND VERIFY(12)", &[0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0], WRITES, verify::write_and_verify),
    row(0xaf, "VERIFY(12)", &[0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0], MEDIUM, verify::verify),
    row(0xb7, "READ DEFECT DATA(12)", &[0x1f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0], MEDIUM, medium::read_defect_data_12),
];

/// First row of each operation code; `NO_ROW` if there is none.
static FIRST: [u8; 256] = first_rows();

const NO_ROW: u8 = 0xff;

const fn first_rows() -> [u8; 256] {
    let mut first = [NO_ROW; 256];
    let mut i = ROWS.len();
    while i > 0 {
        i -= 1;
        first[ROWS[i].opcode as usize] = i as u8;
    }
    first
}

/// The row of a CDB, among those that `unit` supports; without a unit, among those that every unit does.
pub(super) fn find(cdb: &Cdb, unit: Option<&Unit>) -> Result<&'static Row, Sense> {
    let opcode = cdb.opcode();
    let mut rows = rows_of(opcode, unit).peekable();
    let known = rows.peek().is_some();
    rows.find(|r| r.action.is_none_or(|a| u16::from(a) == cdb.action()))
        .ok_or_else(|| if known { Sense::cdb_bit(1, 4) } else { Sense::illegal(Code::INVALID_OPERATION_CODE) })
}

/// The rows of an operation code that `unit` supports: several if it has service actions.
pub(super) fn rows_of(opcode: u8, unit: Option<&Unit>) -> impl Iterator<Item = &'static Row> {
    let first = usize::from(FIRST[usize::from(opcode)]);
    let rows = ROWS.get(first..).unwrap_or_default();
    rows.iter().take_while(move |r| r.opcode == opcode).filter(move |r| r.needs.met_by(unit))
}

/// All rows that `unit` supports.
pub(super) fn rows_for(unit: &Unit) -> impl Iterator<Item = &'static Row> {
    ROWS.iter().filter(move |r| r.needs.met_by(Some(unit)))
}

impl Row {
    /// Length of the CDB in bytes.
    pub(super) const fn cdb_len(&self) -> usize {
        1 + self.usage.len()
    }

    /// CDB USAGE DATA as reported: the operation code, then the bits that are looked at, a service action in place.
    pub(super) fn usage_data(&self, unit: Option<&Unit>) -> Vec<u8> {
        let mut usage = vec![self.opcode];
        usage.extend_from_slice(self.usage);
        for (needs, byte, bits) in self.only {
            if !needs.met_by(unit) {
                usage[*byte] &= !bits;
            }
        }
        usage[1] |= self.action.unwrap_or(0);
        usage
    }

    /// INVALID FIELD IN CDB if a bit is set that this command does not look at.
    pub(super) fn check_reserved(&self, cdb: &Cdb, unit: Option<&Unit>) -> Result<(), Sense> {
        for (i, &usage) in self.usage.iter().enumerate() {
            let byte = i + 1;
            let mut known = usage;
            if byte == 1 && self.action.is_some() {
                known |= 0x1f;
            }
            for (needs, at, bits) in self.only {
                if *at == byte && !needs.met_by(unit) {
                    known &= !bits;
                }
            }
            let unknown = cdb.byte(byte) & !known;
            if unknown != 0 {
                return Err(Sense::cdb_bit(byte as u16, 7 - unknown.leading_zeros() as u8));
            }
        }
        Ok(())
    }

    pub(super) fn run(&self, call: &mut Call<'_>) -> Outcome {
        (self.handler)(call)
    }

    const fn has(&self, traits: u8) -> bool {
        self.traits & traits == traits
    }

    /// See [`EXEMPT`].
    pub(super) const fn is_exempt(&self) -> bool {
        self.has(EXEMPT)
    }

    /// Whether it runs beside the reservation of another nexus.
    pub(super) const fn passes_reservations(&self) -> bool {
        self.has(EXEMPT) || self.has(RELEASES)
    }

    /// See [`WELL_KNOWN`].
    pub(super) const fn is_for_well_known(&self) -> bool {
        self.has(WELL_KNOWN)
    }

    /// Whether it is answered where no unit is.
    pub(super) const fn is_for_empty(&self, lun_zero: bool) -> bool {
        self.has(EMPTY) || lun_zero && self.has(EMPTY_ZERO)
    }

    /// See [`MEDIUM`].
    pub(super) const fn needs_medium(&self) -> bool {
        self.has(MEDIUM)
    }

    /// See [`WRITES`].
    pub(super) const fn writes(&self) -> bool {
        self.has(WRITES)
    }
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Needs {
    fn met_by(self, unit: Option<&Unit>) -> bool {
        match self {
            Self::Nothing => true,
            Self::Discard => unit.is_some_and(|u| u.info().discard.is_some()),
            Self::Removable => unit.is_some_and(|u| u.config.removable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_their_lengths_match_the_group_code() {
        assert!(ROWS.windows(2).all(|w| (w[0].opcode, w[0].action) < (w[1].opcode, w[1].action)));
        for row in &ROWS {
            let len = match row.opcode >> 5 {
                0 => 6,
                1 | 2 => 10,
                4 => 16,
                5 => 12,
                group => panic!("{row:?} in group {group}"),
            };
            assert_eq!(row.cdb_len(), len, "{row:?}");
            assert_eq!(row.usage.last(), Some(&0), "{row:?}: CONTROL");
        }
    }

    #[test]
    fn service_actions_are_not_mixed_with_plain_rows() {
        for pair in ROWS.windows(2).filter(|w| w[0].opcode == w[1].opcode) {
            assert!(pair.iter().all(|r| r.action.is_some()), "{pair:?}");
        }
    }
}
