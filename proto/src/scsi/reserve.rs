//! RESERVE and RELEASE (SPC-2 7.21, 7.16): the whole unit, for one I_T nexus, until it releases it or is lost, or a reset.
//!
//! Who may do what meanwhile is decided when a command is admitted (`device.rs`).

use super::task::{Call, Next, Outcome};

/// RESERVE(6), (10). A holder may reserve again.
pub(super) fn reserve(call: &mut Call<'_>) -> Outcome {
    let nexus = call.task.nexus;
    call.unit_mut().reserved_by = Some(nexus);
    Ok(Next::GOOD)
}

/// RELEASE(6), (10). Releasing what another nexus holds, or nobody, does nothing and is no error.
pub(super) fn release(call: &mut Call<'_>) -> Outcome {
    let nexus = call.task.nexus;
    let unit = call.unit_mut();
    if unit.reserved_by == Some(nexus) {
        unit.reserved_by = None;
    }
    Ok(Next::GOOD)
}
