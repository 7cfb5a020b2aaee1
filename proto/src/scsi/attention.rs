//! Unit attention conditions (SAM-5 5.14): what one I_T nexus has not been told yet about one logical unit.
//!
//! Each condition is pending at most once, so the queue is as long as there are conditions, and they leave it in order of
//! precedence (SAM-5 5.3.3): resets first, because they make initiators look at everything else again.

use super::sense::{Code, Key, Sense};

/// A condition. The order is the precedence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(super) enum Attention {
    /// 29h/00h POWER ON, RESET, OR BUS DEVICE RESET OCCURRED: the I_T nexus is new.
    NewNexus,
    /// 29h/02h SCSI BUS RESET OCCURRED: TARGET WARM RESET or TARGET COLD RESET.
    TargetReset,
    /// 29h/03h BUS DEVICE RESET FUNCTION OCCURRED: LOGICAL UNIT RESET.
    UnitReset,
    /// 2Fh/00h COMMANDS CLEARED BY ANOTHER INITIATOR.
    CommandsCleared,
    /// 28h/00h NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED.
    MediumChanged,
    /// 2Ah/09h CAPACITY DATA HAS CHANGED.
    CapacityChanged,
    /// 2Ah/01h MODE PARAMETERS CHANGED.
    ModeChanged,
    /// 3Fh/03h INQUIRY DATA HAS CHANGED.
    InquiryChanged,
    /// 3Fh/0Eh REPORTED LUNS DATA HAS CHANGED.
    LunsChanged,
}

impl Attention {
    const ALL: [Self; 9] = [
        Self::NewNexus,
        Self::TargetReset,
        Self::UnitReset,
        Self::CommandsCleared,
        Self::MediumChanged,
        Self::CapacityChanged,
        Self::ModeChanged,
        Self::InquiryChanged,
        Self::LunsChanged,
    ];

    /// Whether it tells of a reset, in which all others are contained, and which even RESERVATION CONFLICT does not hide.
    pub(super) const fn is_reset(self) -> bool {
        matches!(self, Self::NewNexus | Self::TargetReset | Self::UnitReset)
    }

    pub(super) const fn sense(self) -> Sense {
        let code = match self {
            Self::NewNexus => Code(0x29, 0x00),
            Self::TargetReset => Code(0x29, 0x02),
            Self::UnitReset => Code(0x29, 0x03),
            Self::CommandsCleared => Code(0x2f, 0x00),
            Self::MediumChanged => Code(0x28, 0x00),
            Self::CapacityChanged => Code(0x2a, 0x09),
            Self::ModeChanged => Code(0x2a, 0x01),
            Self::InquiryChanged => Code(0x3f, 0x03),
            Self::LunsChanged => Code(0x3f, 0x0e),
        };
        Sense::new(Key::UnitAttention, code)
    }

    const fn bit(self) -> u16 {
        1 << self as u8
    }
}

/// The pending conditions of one I_T_L nexus.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Attentions(u16);

impl Attentions {
    /// A condition arises. A reset takes the place of everything that was pending.
    pub(super) const fn raise(&mut self, attention: Attention) {
        if attention.is_reset() {
            self.0 &= Attention::NewNexus.bit();
        }
        self.0 |= attention.bit();
    }

    /// The condition to report next.
    pub(super) fn first(self) -> Option<Attention> {
        Attention::ALL.into_iter().find(|a| self.0 & a.bit() != 0)
    }

    /// The condition was reported, or is no longer news.
    pub(super) const fn clear(&mut self, attention: Attention) {
        self.0 &= !attention.bit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_leave_by_precedence_and_once() {
        let mut pending = Attentions::default();
        for attention in [Attention::LunsChanged, Attention::ModeChanged, Attention::CapacityChanged] {
            pending.raise(attention);
            pending.raise(attention);
        }
        let mut order = Vec::new();
        while let Some(attention) = pending.first() {
            pending.clear(attention);
            order.push(attention);
        }
        assert_eq!(order, [Attention::CapacityChanged, Attention::ModeChanged, Attention::LunsChanged]);
    }

    #[test]
    fn a_reset_takes_the_place_of_what_was_pending() {
        let mut pending = Attentions::default();
        pending.raise(Attention::ModeChanged);
        pending.raise(Attention::UnitReset);
        pending.clear(Attention::UnitReset);
        assert_eq!(pending.first(), None);
    }
}
