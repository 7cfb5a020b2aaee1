//! What the device says of itself beside INQUIRY: REPORT LUNS, REQUEST SENSE, REPORT SUPPORTED OPERATION CODES and TASK
//! MANAGEMENT FUNCTIONS.

use super::attention::Attention;
use super::lun;
use super::opcodes::{self, Row};
use super::sense::{Code, Key, Sense};
use super::task::{Call, Outcome, Target};

/// REPORT LUNS (SPC-4 6.33). It is what REPORTED LUNS DATA HAS CHANGED asks for, and so clears that on every unit.
pub(super) fn report_luns(call: &mut Call<'_>) -> Outcome {
    const SELECT_REPORT: u16 = 2;
    let cdb = call.cdb();
    let (units, well_known) = match cdb.byte(2) {
        0x00 => (true, false),
        0x01 => (false, true),
        0x02 => (true, true),
        // Administrative logical units: there are none; and with 11h, all that are not subsidiary to one.
        0x10 => (false, false),
        0x11 => (true, false),
        _ => return Err(Sense::cdb_byte(SELECT_REPORT).into()),
    };
    let mut list = Vec::new();
    if units {
        list.extend(call.device.luns().into_iter().map(lun::encode));
    }
    if well_known {
        list.push(lun::REPORT_LUNS_WLUN);
    }
    let mut data = vec![0; 8];
    data[..4].copy_from_slice(&(8 * list.len() as u32).to_be_bytes());
    data.extend(list.into_iter().flatten());
    let nexus = call.task.nexus;
    call.device.clear_everywhere(nexus, Attention::LunsChanged);
    call.reply_with(&data, cdb.u32(6))
}

/// REQUEST SENSE (SPC-4 6.39): a pending unit attention, which it thereby clears, or that there is nothing to say.
pub(super) fn request_sense(call: &mut Call<'_>) -> Outcome {
    let cdb = call.cdb();
    let sense = match call.task.target {
        Target::Unit(index) => {
            let nexus = call.task.nexus;
            let pending = call.device.take_attention(nexus, index, |_| true);
            pending.map_or(Sense::new(Key::NoSense, Code::NONE), Attention::sense)
        }
        Target::ReportLuns => Sense::new(Key::NoSense, Code::NONE),
        Target::EmptyZero | Target::Nothing => Sense::illegal(Code::LOGICAL_UNIT_NOT_SUPPORTED),
    };
    let descriptor = cdb.has(1, 0x01);
    call.reply_with(sense.encode(descriptor).as_bytes(), u32::from(cdb.byte(4)))
}

/// REPORT SUPPORTED OPERATION CODES (SPC-4 6.35).
pub(super) fn supported_opcodes(call: &mut Call<'_>) -> Outcome {
    let cdb = call.cdb();
    let with_timeouts = cdb.has(2, 0x80);
    let (opcode, action) = (cdb.byte(3), cdb.u16(4));
    let matches = |row: &Row| row.action.map_or(action == 0, |a| u16::from(a) == action);
    let rows: Vec<&Row> = opcodes::rows_of(opcode, Some(call.unit())).collect();
    let has_actions = rows.iter().any(|r| r.action.is_some());
    let data = match cdb.byte(2) & 0x07 {
        0b000 => all_commands(call, with_timeouts),
        // The operation code alone: not enough for those with service actions.
        0b001 if has_actions => return Err(Sense::cdb_bit(2, 2).into()),
        0b001 => one_command(call, rows.first().copied(), with_timeouts),
        // With a service action: too much for those without.
        0b010 if !rows.is_empty() && !has_actions => return Err(Sense::cdb_bit(2, 2).into()),
        0b010 | 0b011 => one_command(call, rows.into_iter().find(|r| matches(r)), with_timeouts),
        _ => return Err(Sense::cdb_bit(2, 2).into()),
    };
    call.reply_with(&data, cdb.u32(6))
}

/// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS (SPC-4 6.36).
pub(super) fn supported_task_management(call: &mut Call<'_>) -> Outcome {
    /// ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET, TARGET RESET.
    const SUPPORTED: u8 = 0x80 | 0x40 | 0x10 | 0x08 | 0x02;
    let cdb = call.cdb();
    let mut data = vec![SUPPORTED, 0, 0, 0];
    let extended = cdb.has(2, 0x80);
    if extended {
        // REPD: timeouts are not known.
        data[3] = 0x0c;
        data.resize(16, 0);
    }
    call.reply_with(&data, cdb.u32(6))
}

/// Command timeouts descriptor (SPC-4 6.35.4): its length, no times known.
const TIMEOUTS: [u8; 12] = [0, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn all_commands(call: &Call<'_>, with_timeouts: bool) -> Vec<u8> {
    const CTDP: u8 = 0x02;
    const SERVACTV: u8 = 0x01;
    let mut data = vec![0; 4];
    for row in opcodes::rows_for(call.unit()) {
        let flags = if with_timeouts { CTDP } else { 0 } | if row.action.is_some() { SERVACTV } else { 0 };
        let len = (row.cdb_len() as u16).to_be_bytes();
        data.extend_from_slice(&[row.opcode, 0, 0, row.action.unwrap_or(0), 0, flags, len[0], len[1]]);
        if with_timeouts {
            data.extend_from_slice(&TIMEOUTS);
        }
    }
    let command_data_length = (data.len() - 4) as u32;
    data[..4].copy_from_slice(&command_data_length.to_be_bytes());
    data
}

fn one_command(call: &Call<'_>, row: Option<&Row>, with_timeouts: bool) -> Vec<u8> {
    const CTDP: u8 = 0x80;
    const NOT_SUPPORTED: u8 = 0b001;
    const AS_IN_THE_STANDARD: u8 = 0b011;
    let Some(row) = row else { return vec![0, NOT_SUPPORTED, 0, 0] };
    let len = (row.cdb_len() as u16).to_be_bytes();
    let mut data = vec![0, AS_IN_THE_STANDARD | if with_timeouts { CTDP } else { 0 }, len[0], len[1]];
    data.extend_from_slice(&row.usage_data(Some(call.unit())));
    if with_timeouts {
        data.extend_from_slice(&TIMEOUTS);
    }
    data
}
