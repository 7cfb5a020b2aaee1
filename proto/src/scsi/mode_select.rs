//! MODE SELECT (SPC-4 6.9): the whole parameter list is checked, then all of it takes effect, or nothing.

use platter_block::{BufId, Op, Status};

use super::attention::Attention;
use super::mode::{self, CACHING, CONTROL, D_SENSE, SWP, Settings, WCE, block_descriptor};
use super::sense::{Code, Fail, Sense};
use super::task::{Call, Next, Outcome, Work};
use super::unit::Unit;

/// MODE SELECT(6). SP=1 is refused: nothing can be saved.
pub(super) fn mode_select_6(call: &mut Call<'_>) -> Outcome {
    let len = usize::from(call.cdb().byte(4));
    begin(call, len, Header::Six)
}

/// MODE SELECT(10).
pub(super) fn mode_select_10(call: &mut Call<'_>) -> Outcome {
    let len = usize::from(call.cdb().u16(7));
    begin(call, len, Header::Ten)
}

fn begin(call: &mut Call<'_>, len: usize, header: Header) -> Outcome {
    const PF_BIT: u8 = 4;
    if len == 0 {
        return Ok(Next::GOOD);
    }
    if !call.cdb().has(1, 1 << PF_BIT) {
        return Err(Sense::cdb_bit(1, PF_BIT).into());
    }
    call.receive_list(len, |list| Work::ModeSelect(ModeSelect { list, header }))
}

/// A MODE SELECT that waits for its parameter list.
#[derive(Debug)]
pub(super) struct ModeSelect {
    list: BufId,
    header: Header,
}

/// Which mode parameter header (SPC-4 7.5.4).
#[derive(Clone, Copy, Debug)]
enum Header {
    Six,
    Ten,
}

impl ModeSelect {
    /// The list is here. A switch of the write cache is an op on the volume; everything else takes effect at once.
    pub(super) fn proceed(self, call: &mut Call<'_>) -> Outcome {
        let nexus = call.task.nexus;
        let old = Settings::current(call.unit());
        let new = self.parse(call.pool.bytes(self.list), call.unit())?;
        let changes = Changes { old, new };
        if new.write_cache == old.write_cache {
            return changes.proceed(call);
        }
        call.unit_mut().cache_switched_by = Some(nexus);
        let op = Op::SetWriteCache { enabled: new.write_cache };
        Ok(Next::Submit { op, then: Work::ModeChange(changes) })
    }

    fn parse(&self, list: &[u8], unit: &Unit) -> Result<Settings, Sense> {
        let too_short = Sense::illegal(Code::PARAMETER_LIST_LENGTH_ERROR);
        let header_len = match self.header {
            Header::Six => 4,
            Header::Ten => 8,
        };
        let header = list.get(..header_len).ok_or(too_short)?;
        let (long_lba, descriptor_len_at, descriptor_len) = match self.header {
            Header::Six => (false, 3, usize::from(header[3])),
            Header::Ten => (header[4] & 1 != 0, 6, usize::from(u16::from_be_bytes([header[6], header[7]]))),
        };
        if descriptor_len > 0 {
            let ours = block_descriptor(unit, long_lba);
            if descriptor_len != ours.len() {
                return Err(Sense::list_byte(descriptor_len_at));
            }
            let descriptor = list.get(header_len..header_len + descriptor_len).ok_or(too_short)?;
            if !describes(descriptor, &ours) {
                return Err(Sense::list_byte(header_len as u16));
            }
        }
        let mut settings = Settings::current(unit);
        let mut at = header_len + descriptor_len;
        while at < list.len() {
            at += parse_page(&list[at..], at, unit, &mut settings)?;
        }
        Ok(settings)
    }
}

/// Whether a block descriptor leaves the medium as it is: the same block length, and the same number of blocks, or one of
/// the values that mean that (0, all ones).
fn describes(descriptor: &[u8], ours: &[u8]) -> bool {
    let blocks_len = ours.len() / 2;
    let (blocks, length) = descriptor.split_at(blocks_len);
    let any_number = blocks.iter().all(|&b| b == 0) || blocks.iter().all(|&b| b == 0xff);
    (any_number || blocks == &ours[..blocks_len]) && length == &ours[blocks_len..]
}

/// Takes one page from the front of `list`, which is at byte `at` of the whole. Its length.
fn parse_page(list: &[u8], at: usize, unit: &Unit, settings: &mut Settings) -> Result<usize, Sense> {
    let refuse = |byte: usize| Sense::list_byte(u16::try_from(at + byte).unwrap_or(u16::MAX));
    // PS is reserved here, but initiators send back what MODE SENSE gave them. SPF: there are no subpages.
    let code = list[0] & 0x7f;
    let (Some(current), Some(changeable)) = (mode::page(code, *settings), mode::changeable(code, unit)) else {
        return Err(refuse(0));
    };
    let &page_length = list.get(1).ok_or(Sense::illegal(Code::PARAMETER_LIST_LENGTH_ERROR))?;
    if page_length != current[1] {
        return Err(refuse(1));
    }
    let page = list.get(..current.len()).ok_or(Sense::illegal(Code::PARAMETER_LIST_LENGTH_ERROR))?;
    for i in 2..page.len() {
        if (page[i] ^ current[i]) & !changeable[i] != 0 {
            return Err(refuse(i));
        }
    }
    match code {
        CACHING => settings.write_cache = page[2] & WCE != 0,
        CONTROL => {
            settings.mode.descriptor_sense = page[2] & D_SENSE != 0;
            settings.mode.write_protect = page[4] & SWP != 0;
        }
        _ => {}
    }
    Ok(page.len())
}

/// Settings about to take effect.
#[derive(Debug)]
pub(super) struct Changes {
    old: Settings,
    new: Settings,
}

impl Changes {
    /// The write cache is as it should be; now the rest. Other nexuses are told (2Ah/01h).
    pub(super) fn proceed(self, call: &mut Call<'_>) -> Outcome {
        let (index, nexus) = (call.unit_index(), call.task.nexus);
        let unit = call.unit_mut();
        unit.mode = self.new.mode;
        unit.config.info.write_cache = self.new.write_cache;
        unit.cache_switched_by = None;
        if self.new != self.old {
            call.device.raise(index, Attention::ModeChanged, Some(nexus));
        }
        Ok(Next::GOOD)
    }

    /// The write cache could not be switched: nothing changes.
    pub(super) fn failed(self, call: &mut Call<'_>, status: Status) -> Outcome {
        call.unit_mut().cache_switched_by = None;
        Err(Fail::of(status, true))
    }
}
