//! The medium as a whole: TEST UNIT READY, START STOP UNIT, PREVENT ALLOW MEDIUM REMOVAL, READ DEFECT DATA.
//!
//! Units share disks, so a unit has no spindle of its own to stop and no power condition of its own to change: START STOP
//! UNIT without LOEJ only makes data durable, and a POWER CONDITION, whatever its value, changes nothing. A removable unit
//! can lose its medium by LOEJ; then every command that needs one is answered MEDIUM NOT PRESENT until it is loaded again.

use platter_block::Op;

use super::attention::Attention;
use super::sense::{Code, Key, Sense};
use super::task::{Call, Next, Outcome, Work};

/// TEST UNIT READY (SPC-4 6.47). Readiness was checked when the command was admitted.
pub(super) fn test_unit_ready(_: &mut Call<'_>) -> Outcome {
    Ok(Next::GOOD)
}

/// START STOP UNIT (SBC-3 5.25). IMMED=1 is answered like IMMED=0, when all is done.
pub(super) fn start_stop_unit(call: &mut Call<'_>) -> Outcome {
    let flags = call.cdb().byte(4);
    let (power_condition, no_flush) = (flags >> 4, flags & 0x04 != 0);
    let (load_eject, start) = (flags & 0x02 != 0, flags & 0x01 != 0);
    let loaded = call.unit().loaded;
    if power_condition != 0 {
        return Ok(Next::GOOD);
    }
    if load_eject {
        check_removal_allowed(call)?;
        if start {
            return load(call);
        }
        let eject = Eject;
        return match (loaded, no_flush) {
            (false, _) => Ok(Next::GOOD),
            (true, false) => Ok(Next::Submit { op: Op::Flush, then: Work::Eject(eject) }),
            (true, true) => eject.proceed(call),
        };
    }
    match (loaded, start) {
        (false, _) => Err(Sense::new(Key::NotReady, Code::MEDIUM_NOT_PRESENT).into()),
        (true, false) if !no_flush => Ok(Next::Submit { op: Op::Flush, then: Work::Reply(None) }),
        (true, _) => Ok(Next::GOOD),
    }
}

/// An eject whose flush is under way.
#[derive(Debug)]
pub(super) struct Eject;

impl Eject {
    /// Everything is durable: out it goes, unless somebody prevented it meanwhile.
    pub(super) fn proceed(self, call: &mut Call<'_>) -> Outcome {
        check_removal_allowed(call)?;
        call.unit_mut().loaded = false;
        Ok(Next::GOOD)
    }
}

/// PREVENT ALLOW MEDIUM REMOVAL (SBC-3 5.14): counts per I_T nexus. Allowed without a medium, and on units that are not
/// removable, where it is trivially true.
pub(super) fn prevent_allow(call: &mut Call<'_>) -> Outcome {
    let (nexus, prevent) = (call.task.nexus, call.cdb().has(4, 0x01));
    let unit = call.unit_mut();
    if prevent {
        unit.prevented_by.insert(nexus);
    } else {
        unit.prevented_by.remove(&nexus);
    }
    Ok(Next::GOOD)
}

/// READ DEFECT DATA(10) (SBC-3 5.17). Disks keep their defects to themselves: both lists of a volume are valid and empty.
pub(super) fn read_defect_data_10(call: &mut Call<'_>) -> Outcome {
    let cdb = call.cdb();
    call.reply_with(&[0, cdb.byte(2), 0, 0], u32::from(cdb.u16(7)))
}

/// READ DEFECT DATA(12) (SBC-3 5.18).
pub(super) fn read_defect_data_12(call: &mut Call<'_>) -> Outcome {
    let cdb = call.cdb();
    call.reply_with(&[0, cdb.byte(1), 0, 0, 0, 0, 0, 0], cdb.u32(6))
}

fn load(call: &mut Call<'_>) -> Outcome {
    let was_loaded = std::mem::replace(&mut call.unit_mut().loaded, true);
    if !was_loaded {
        let (index, nexus) = (call.unit_index(), call.task.nexus);
        call.device.raise(index, Attention::MediumChanged, Some(nexus));
    }
    Ok(Next::GOOD)
}

fn check_removal_allowed(call: &Call<'_>) -> Result<(), Sense> {
    if call.unit().prevented_by.is_empty() { Ok(()) } else { Err(Sense::illegal(Code::MEDIUM_REMOVAL_PREVENTED)) }
}
