//! Stand-in until the builders of Identify data, logs, features and events are there.

use platter_block::Instant;

use super::config::Limits;
use super::controller::Controller;
use super::sqe::Sqe;
use super::status::Status;
use super::subsystem::{Directory, Subsystem};

pub(super) const VERSION: u32 = 0x0002_0100;

pub(super) struct View<'a> {
    pub(super) controller: &'a Controller,
    pub(super) subsystem: Option<&'a Subsystem>,
    pub(super) directory: &'a Directory,
    pub(super) limits: &'a Limits,
    pub(super) now: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Notice {
    Namespace(u32),
    Ana,
    Discovery,
}

#[derive(Debug)]
pub(super) enum Change {
    Done(Features, u32),
    WriteCache(bool),
    KeepAlive(u32),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Features {}

#[derive(Debug, Default)]
pub(super) struct AsyncEvents {
    pending: Vec<u32>,
}

#[derive(Debug, Default)]
pub(super) struct ChangedNamespaces {
    nsids: Vec<u32>,
}

impl Features {
    pub(super) fn data_len(_sqe: &Sqe) -> usize {
        0
    }
}

impl Controller {
    pub(super) fn raise(&mut self, notice: Notice) {
        let event = match notice {
            Notice::Namespace(nsid) => {
                self.changed.nsids.push(nsid);
                0x0004_0002
            }
            Notice::Ana => 0x000c_0302,
            Notice::Discovery => 0x0070_f002,
        };
        if !self.events.pending.contains(&event) {
            self.events.pending.push(event);
        }
    }

    pub(super) fn next_event(&mut self) -> Option<u32> {
        if self.events.pending.is_empty() { None } else { Some(self.events.pending.remove(0)) }
    }

    pub(super) fn log_read(&mut self, _lid: u8) {}
}

pub(super) fn identify(_view: &View<'_>, _cntlids: &[u16], _sqe: &Sqe) -> Result<Vec<u8>, Status> {
    Ok(vec![0; 4096])
}

pub(super) fn log_page(_view: &View<'_>, _sqe: &Sqe) -> Result<Vec<u8>, Status> {
    Ok(vec![0xff; 512])
}

pub(super) fn set_feature(_view: &View<'_>, sqe: &Sqe, _data: &[u8]) -> Result<Change, Status> {
    match sqe.cdw(10) as u8 {
        0x06 => Ok(Change::WriteCache(sqe.cdw(11) & 1 != 0)),
        0x07 => Ok(Change::Done(Features {}, 0x007f_007f)),
        0x0b => Ok(Change::Done(Features {}, 0)),
        0x0f => Ok(Change::KeepAlive(sqe.cdw(11))),
        _ => Err(Status::INVALID_FIELD),
    }
}

pub(super) fn get_feature(view: &View<'_>, sqe: &Sqe) -> Result<(u32, Vec<u8>), Status> {
    match sqe.cdw(10) as u8 {
        0x0f => Ok((view.controller.kato, Vec::new())),
        _ => Err(Status::INVALID_FIELD),
    }
}
