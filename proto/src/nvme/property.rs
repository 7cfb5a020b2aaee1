//! Controller properties (NVMe base, Controller Properties), as Property Get and Property Set reach them.

use platter_block::BufPool;

use super::config::Limits;
use super::data;
use super::sqe::Sqe;
use super::status::Status;
use super::target::Target;
use super::task::{Next, Outcome};
use super::walk::{Errand, Walk};
use crate::slab::Key;

const CAP: u32 = 0x00;
const VS: u32 = 0x08;
const CC: u32 = 0x14;
const CSTS: u32 = 0x1c;
const CRTO: u32 = 0x68;

/// How long a host has to wait for CSTS.RDY to change, in units of 500 ms (CAP.TO, CRTO.CRWMT): what is in progress has to
/// leave the engine before RDY is cleared.
const READY_TIMEOUT: u16 = 20;

/// CC.
const ENABLE: u32 = 1 << 0;
const COMMAND_SET: u32 = 0b111 << 4;
const PAGE_SIZE: u32 = 0xf << 7;
const ARBITRATION: u32 = 0b111 << 11;
const SHUTDOWN: u32 = 0b11 << 14;
const ENTRY_SIZES: u32 = 0xff << 16;
const KNOWN: u32 = ENABLE | COMMAND_SET | PAGE_SIZE | ARBITRATION | SHUTDOWN | ENTRY_SIZES;

/// IOSQES 6 (64 bytes) and IOCQES 4 (16 bytes).
const REQUIRED_ENTRY_SIZES: u32 = 6 << 16 | 4 << 20;

/// CSTS.
const READY: u32 = 1 << 0;
const FATAL: u32 = 1 << 1;
const SHUTDOWN_COMPLETE: u32 = 0b10 << 2;

/// The properties of one controller that change.
#[derive(Debug, Default)]
pub(super) struct Properties {
    cc: u32,
    /// CSTS but for RDY, which follows from CC.EN and the ops in the engine.
    csts: u32,
}

impl Properties {
    /// Enabled, and not shut down.
    pub(super) const fn is_ready(&self) -> bool {
        self.cc & (ENABLE | SHUTDOWN) == ENABLE
    }

    /// CSTS.SHST: shutdown processing is complete.
    pub(super) const fn shut_down(&mut self) {
        self.csts |= SHUTDOWN_COMPLETE;
    }

    /// CSTS.CFS.
    pub(super) const fn failed(&mut self) {
        self.csts |= FATAL;
    }
}

/// CAP: CQR, only the NVM command set, 4 KiB pages, CRMS.CRWMS.
const fn capabilities(limits: &Limits) -> u64 {
    let mqes = limits.queue_entries as u64 - 1;
    mqes | 1 << 16 | (READY_TIMEOUT as u64) << 24 | 1 << 37 | 1 << 59
}

impl Target {
    /// Property Get. A half of CAP may be asked for.
    pub(super) fn property_get(&self, key: Key, sqe: &Sqe) -> Outcome {
        let controller = self.controller_of(key);
        let properties = &controller.properties;
        let cap = capabilities(&self.limits);
        let value = match (sqe.u32(44), size(sqe)?) {
            (CAP, 8) => cap,
            (CAP, 4) => cap & 0xffff_ffff,
            (offset, 4) if offset == CAP + 4 => cap >> 32,
            (VS, 4) => data::VERSION.into(),
            (CC, 4) => properties.cc.into(),
            (CSTS, 4) => {
                let ready = properties.cc & ENABLE != 0 || controller.ops > 0 && controller.is_resetting;
                (properties.csts | if ready { READY } else { 0 }).into()
            }
            (CRTO, 4) => READY_TIMEOUT.into(),
            _ => return Err(Status::CONNECT_INVALID.into()),
        };
        Ok(Next::Done { result: value, data: None })
    }

    /// Property Set: CC is all that can be set.
    pub(super) fn property_set(&mut self, key: Key, sqe: &Sqe, pool: &mut BufPool) -> Outcome {
        if (sqe.u32(44), size(sqe)?) != (CC, 4) {
            return Err(Status::CONNECT_INVALID.into());
        }
        let new = sqe.u32(48);
        if new & !KNOWN != 0 || new & SHUTDOWN == SHUTDOWN {
            return Err(Status::INVALID_FIELD.into());
        }
        let controller = self.controller_of_mut(key);
        let old = controller.properties.cc;
        if new & !old & ENABLE != 0 {
            return self.enable(key, new);
        }
        if old & !new & ENABLE != 0 {
            controller.properties = Properties { cc: new & !SHUTDOWN, csts: 0 };
            self.reset(key, pool);
            return Ok(Next::SUCCESS);
        }
        controller.properties.cc = new;
        if new & SHUTDOWN != 0 && old & SHUTDOWN == 0 {
            return self.walk(key, Walk::new(Errand::Shutdown));
        }
        Ok(Next::SUCCESS)
    }

    /// CC.EN becomes 1.
    fn enable(&mut self, key: Key, cc: u32) -> Outcome {
        let controller = self.controller_of_mut(key);
        let other = COMMAND_SET | PAGE_SIZE | ARBITRATION | SHUTDOWN;
        let sizes_right = controller.subsystem.is_none() || cc & ENTRY_SIZES == REQUIRED_ENTRY_SIZES;
        if cc & other != 0 || !sizes_right {
            return Err(Status::INVALID_FIELD.into());
        }
        if controller.ops > 0 {
            return Err(Status::SEQUENCE_ERROR.into());
        }
        controller.is_resetting = false;
        controller.properties = Properties { cc, csts: 0 };
        Ok(Next::SUCCESS)
    }
}

/// ATTRIB: 4 or 8 bytes.
const fn size(sqe: &Sqe) -> Result<u32, Status> {
    match sqe.0[40] & 0b111 {
        0 => Ok(4),
        1 => Ok(8),
        _ => Err(Status::CONNECT_INVALID),
    }
}
