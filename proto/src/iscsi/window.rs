//! Command numbering (4.2.2.1): serial number arithmetic (RFC 1982) and the window of CmdSNs a session takes.

/// Whether `a` comes before `b` in serial number arithmetic with 32 bits.
pub(super) const fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// The CmdSNs that a session takes: ExpCmdSN to MaxCmdSN, both included.
///
/// MaxCmdSN moves when a command *ends*, not when it arrives, so that the width of the window is the number of
/// non-immediate commands that an initiator can have outstanding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CommandWindow {
    expected: u32,
    max: u32,
}

/// Where a CmdSN lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// The one expected.
    Next,
    /// Within the window, but others come first.
    Ahead,
    /// Ignored.
    Outside,
}

impl CommandWindow {
    /// The window of a new session, whose first non-immediate command carries `first`.
    pub(super) const fn new(first: u32, width: u32) -> Self {
        Self { expected: first, max: first.wrapping_add(width).wrapping_sub(1) }
    }

    /// ExpCmdSN.
    pub(super) const fn expected(&self) -> u32 {
        self.expected
    }

    /// MaxCmdSN.
    pub(super) const fn max(&self) -> u32 {
        self.max
    }

    /// Whether no command is taken until one ends (11.4.11).
    pub(super) const fn is_closed(&self) -> bool {
        before(self.max, self.expected)
    }

    /// Whether `cmd_sn` may be the one after the last command that was sent: the CmdSN of an immediate request.
    pub(super) const fn reaches(&self, cmd_sn: u32) -> bool {
        !before(self.max.wrapping_add(1), cmd_sn)
    }

    /// Where the CmdSN of a non-immediate command lies.
    pub(super) const fn place(&self, cmd_sn: u32) -> Place {
        if cmd_sn == self.expected && !before(self.max, cmd_sn) {
            Place::Next
        } else if before(cmd_sn, self.expected) || before(self.max, cmd_sn) {
            Place::Outside
        } else {
            Place::Ahead
        }
    }

    /// The command with ExpCmdSN was received.
    pub(super) const fn receive(&mut self) {
        self.expected = self.expected.wrapping_add(1);
    }

    /// A non-immediate command ended.
    pub(super) const fn end(&mut self) {
        self.max = self.max.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a12_the_window_wraps_at_two_to_the_32() {
        let mut window = CommandWindow::new(u32::MAX - 1, 4);
        assert_eq!((window.expected(), window.max()), (u32::MAX - 1, 1));
        assert_eq!(window.place(u32::MAX - 1), Place::Next);
        assert_eq!(window.place(1), Place::Ahead);
        assert_eq!(window.place(2), Place::Outside);
        assert_eq!(window.place(u32::MAX - 2), Place::Outside);
        for _ in 0..3 {
            window.receive();
        }
        assert_eq!(window.place(1), Place::Next);
        window.receive();
        assert!(window.is_closed());
        assert_eq!(window.place(2), Place::Outside);
        window.end();
        assert_eq!(window.place(2), Place::Next);
    }
}
