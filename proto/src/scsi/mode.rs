//! MODE SENSE and the mode pages (SPC-4 6.11, 7.5; SBC-3 6.5): 01h, 08h, 0Ah, 1Ch. Nothing can be saved.

use super::sense::{Code, Sense};
use super::task::{Call, Outcome};
use super::unit::{Mode, Unit};

/// MODE SENSE(6).
pub(super) fn mode_sense_6(call: &mut Call<'_>) -> Outcome {
    let allocation_length = u32::from(call.cdb().byte(4));
    let (descriptor, pages) = parts(call, false)?;
    let mut data = vec![0, 0, device_specific(call.unit()), descriptor.len() as u8];
    data.extend_from_slice(&descriptor);
    data.extend_from_slice(&pages);
    data[0] = u8::try_from(data.len() - 1).expect("all pages together are short");
    call.reply_with(&data, allocation_length)
}

/// MODE SENSE(10).
pub(super) fn mode_sense_10(call: &mut Call<'_>) -> Outcome {
    let long_lba = call.cdb().has(1, 0x10);
    let allocation_length = u32::from(call.cdb().u16(7));
    let (descriptor, pages) = parts(call, long_lba)?;
    let is_long = long_lba && !descriptor.is_empty();
    let mut data = vec![0, 0, 0, device_specific(call.unit()), u8::from(is_long), 0, 0, descriptor.len() as u8];
    data.extend_from_slice(&descriptor);
    data.extend_from_slice(&pages);
    let mode_data_length = (data.len() - 2) as u16;
    data[..2].copy_from_slice(&mode_data_length.to_be_bytes());
    call.reply_with(&data, allocation_length)
}

/// Codes of the pages there are, in the order they are reported.
pub(super) const PAGES: [u8; 4] = [0x01, CACHING, CONTROL, 0x1c];
/// Caching.
pub(super) const CACHING: u8 = 0x08;
/// Control.
pub(super) const CONTROL: u8 = 0x0a;

/// Caching page, byte 2.
pub(super) const WCE: u8 = 0x04;
/// Control page, byte 2.
pub(super) const D_SENSE: u8 = 0x04;
/// Control page, byte 4.
pub(super) const SWP: u8 = 0x08;

/// What initiators can set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Settings {
    pub(super) mode: Mode,
    pub(super) write_cache: bool,
}

impl Settings {
    /// As set now.
    pub(super) const fn current(unit: &Unit) -> Self {
        Self { mode: unit.mode, write_cache: unit.info().write_cache }
    }

    /// As after a power on: a volume with a volatile cache uses it.
    const fn default(unit: &Unit) -> Self {
        let mode = Mode { descriptor_sense: false, write_protect: false };
        Self { mode, write_cache: unit.info().write_cache_changeable }
    }
}

/// A mode page with its header, or `None` if there is no such page.
pub(super) fn page(code: u8, settings: Settings) -> Option<Vec<u8>> {
    match code {
        // Read-Write Error Recovery (SBC-3 6.5.8): the disks recover as they please.
        0x01 => Some(page_of::<12>(code, &[])),
        CACHING => Some(page_of::<20>(code, &[(2, if settings.write_cache { WCE } else { 0 })])),
        CONTROL => {
            const GLTSD: u8 = 0x02;
            const UNRESTRICTED_REORDERING: u8 = 0x10;
            let descriptor_sense = if settings.mode.descriptor_sense { D_SENSE } else { 0 };
            let write_protect = if settings.mode.write_protect { SWP } else { 0 };
            // 8, 9: BUSY TIMEOUT PERIOD, unlimited.
            Some(page_of::<12>(
                code,
                &[
                    (2, descriptor_sense | GLTSD),
                    (3, UNRESTRICTED_REORDERING),
                    (4, write_protect),
                    (8, 0xff),
                    (9, 0xff),
                ],
            ))
        }
        // Informational Exceptions Control (SBC-3 6.5.6): DEXCPT, none are reported.
        0x1c => Some(page_of::<12>(code, &[(2, 0x08)])),
        _ => None,
    }
}

/// The bits of a page that MODE SELECT can change.
pub(super) fn changeable(code: u8, unit: &Unit) -> Option<Vec<u8>> {
    match code {
        0x01 | 0x1c => Some(page_of::<12>(code, &[])),
        CACHING => Some(page_of::<20>(code, &[(2, if unit.info().write_cache_changeable { WCE } else { 0 })])),
        CONTROL => Some(page_of::<12>(code, &[(2, D_SENSE), (4, SWP)])),
        _ => None,
    }
}

/// A page of `LEN` bytes, header included: the code, the length, the bytes given, zeroes.
fn page_of<const LEN: usize>(code: u8, fields: &[(usize, u8)]) -> Vec<u8> {
    let mut page = vec![0; LEN];
    page[0] = code;
    page[1] = (LEN - 2) as u8;
    for (at, byte) in fields {
        page[*at] = *byte;
    }
    page
}

/// Block descriptor and pages that the CDB asks for: PC, PAGE CODE and SUBPAGE CODE are at the same place in both CDBs.
fn parts(call: &Call<'_>, long_lba: bool) -> Result<(Vec<u8>, Vec<u8>), Sense> {
    const ALL_PAGES: u8 = 0x3f;
    const ALL_SUBPAGES: u8 = 0xff;
    let (cdb, unit) = (call.cdb(), call.unit());
    let (control, code, subpage) = (cdb.byte(2) >> 6, cdb.byte(2) & 0x3f, cdb.byte(3));
    if subpage != 0 && subpage != ALL_SUBPAGES {
        return Err(Sense::cdb_byte(3));
    }
    let one = [code];
    let codes: &[u8] = if code == ALL_PAGES { &PAGES } else { &one };
    let mut pages = Vec::new();
    for &code in codes {
        let page = match control {
            0b00 => page(code, Settings::current(unit)),
            0b01 => changeable(code, unit),
            0b10 => page(code, Settings::default(unit)),
            _ => return Err(Sense::illegal(Code::SAVING_PARAMETERS_NOT_SUPPORTED)),
        };
        pages.extend(page.ok_or(Sense::cdb_bit(2, 5))?);
    }
    let disable_block_descriptors = cdb.has(1, 0x08);
    let descriptor = if disable_block_descriptors { Vec::new() } else { block_descriptor(unit, long_lba) };
    Ok((descriptor, pages))
}

/// DEVICE-SPECIFIC PARAMETER (SBC-3 6.5.1): WP, and DPOFUA because FUA is always honoured, by a flush if need be.
fn device_specific(unit: &Unit) -> u8 {
    const WP: u8 = 0x80;
    const DPOFUA: u8 = 0x10;
    DPOFUA | if unit.write_protection().is_some() { WP } else { 0 }
}

/// Short or long LBA mode parameter block descriptor (SBC-3 6.5.2).
pub(super) fn block_descriptor(unit: &Unit, long_lba: bool) -> Vec<u8> {
    let block_size = unit.block_size().to_be_bytes();
    if long_lba {
        [&unit.blocks().to_be_bytes()[..], &[0; 4], &block_size].concat()
    } else {
        let blocks = u32::try_from(unit.blocks()).unwrap_or(u32::MAX).to_be_bytes();
        [&blocks[..], &[0], &block_size[1..]].concat()
    }
}
