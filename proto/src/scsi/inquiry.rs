//! INQUIRY (SPC-4 6.6): standard data. Vital product data pages are in `vpd.rs`.

use super::sense::Sense;
use super::task::{Call, Outcome, Target};
use super::vpd;

/// PERIPHERAL QUALIFIER and PERIPHERAL DEVICE TYPE of each target (SPC-4 table 174).
pub(super) const fn peripheral(target: Target) -> u8 {
    const DIRECT_ACCESS: u8 = 0x00;
    const WELL_KNOWN: u8 = 0x1e;
    const NO_UNIT: u8 = 0x7f;
    match target {
        Target::Unit(_) => DIRECT_ACCESS,
        Target::ReportLuns => WELL_KNOWN,
        Target::EmptyZero | Target::Nothing => NO_UNIT,
    }
}

/// INQUIRY.
pub(super) fn inquiry(call: &mut Call<'_>) -> Outcome {
    let cdb = call.cdb();
    let (evpd, page) = (cdb.has(1, 0x01), cdb.byte(2));
    let data = if evpd {
        vpd::page(call, page).ok_or(Sense::cdb_byte(2))?
    } else if page != 0 {
        return Err(Sense::cdb_byte(2).into());
    } else {
        standard(call).to_vec()
    };
    call.reply_with(&data, u32::from(cdb.u16(3)))
}

/// Standard INQUIRY data.
fn standard(call: &Call<'_>) -> [u8; 96] {
    /// SPC-4.
    const VERSION: u8 = 0x06;
    const HISUP: u8 = 0x10;
    const RESPONSE_DATA_FORMAT: u8 = 0x02;
    const CMDQUE: u8 = 0x02;
    const RMB: u8 = 0x80;
    /// SAM-5, iSCSI, SPC-4, SBC-3, each without claiming a revision.
    const VERSION_DESCRIPTORS: [u16; 4] = [0x00a0, 0x0960, 0x0460, 0x04c0];

    let unit = call.find_unit();
    let mut data = [0; 96];
    data[0] = peripheral(call.task.target);
    data[1] = if unit.is_some_and(|u| u.config.removable) { RMB } else { 0 };
    data[2] = VERSION;
    data[3] = HISUP | RESPONSE_DATA_FORMAT;
    data[4] = (data.len() - 5) as u8;
    data[7] = CMDQUE;
    match unit {
        Some(unit) => {
            let identity = &unit.config.identity;
            data[8..16].copy_from_slice(&identity.vendor);
            data[16..32].copy_from_slice(&identity.product);
            data[32..36].copy_from_slice(&identity.revision);
        }
        None => {
            data[8..16].copy_from_slice(b"PLATTER ");
            data[16..36].fill(b' ');
        }
    }
    for (i, descriptor) in VERSION_DESCRIPTORS.iter().enumerate() {
        data[58 + 2 * i..60 + 2 * i].copy_from_slice(&descriptor.to_be_bytes());
    }
    data
}
