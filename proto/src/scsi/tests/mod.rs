//! The device server against a fake medium. Tests assert what the initiator sees and what the volume was asked.

mod flows;
mod hostile;
mod identity;
mod modes;
mod random;
mod state;

use platter_block::{
    BlockCount, BufId, BufPool, Discard, Extent, Lba, Op, Report, Rotation, Status, VolumeId, VolumeInfo,
};

use super::{Attribute, Command, Device, DeviceConfig, Identity, NexusId, Reply, ScsiStatus, Step, Task, UnitConfig};

const BLOCK: usize = 512;
const BLOCKS: u64 = 4096;
const ONE: NexusId = NexusId(1);
const TWO: NexusId = NexusId(2);
const LUN0: [u8; 8] = [0; 8];

/// A device with a medium of its own, and nexuses `ONE` and `TWO`, both told that they are new.
struct Bench {
    device: Device,
    pool: BufPool,
    medium: Vec<u8>,
    mapped: Vec<bool>,
    /// Every op asked for, in order.
    ops: Vec<Op>,
    /// Ends the next op with this status instead of doing it.
    fail_next: Option<Status>,
    lun: [u8; 8],
}

/// A command that ended.
struct Ended {
    status: ScsiStatus,
    sense: Vec<u8>,
    data: Vec<u8>,
    out_transfer: u64,
    in_transfer: u64,
}

impl Ended {
    /// Sense key, ASC, ASCQ of fixed format sense data.
    fn code(&self) -> (u8, u8, u8) {
        assert_eq!(self.status, ScsiStatus::CHECK_CONDITION, "data {:02x?}", self.data);
        assert_eq!(self.sense[0] & 0x7f, 0x70, "{:02x?}", self.sense);
        (self.sense[2], self.sense[12], self.sense[13])
    }

    /// Byte and bit of the field pointer of fixed format sense data.
    fn field(&self) -> (u16, Option<u8>) {
        assert_eq!(self.sense[15] & 0x80, 0x80, "no field pointer: {:02x?}", self.sense);
        let bit = (self.sense[15] & 0x08 != 0).then_some(self.sense[15] & 0x07);
        (u16::from_be_bytes([self.sense[16], self.sense[17]]), bit)
    }

    /// INFORMATION of fixed format sense data.
    fn information(&self) -> Option<u32> {
        let bytes = self.sense[3..7].try_into().unwrap();
        (self.sense[0] & 0x80 != 0).then_some(u32::from_be_bytes(bytes))
    }

    fn good(self) -> Self {
        assert_eq!(self.status, ScsiStatus::GOOD, "{:02x?}", self.sense);
        self
    }
}

const INVALID_FIELD_IN_CDB: (u8, u8, u8) = (5, 0x24, 0);
const LBA_OUT_OF_RANGE: (u8, u8, u8) = (5, 0x21, 0);
const INVALID_OPCODE: (u8, u8, u8) = (5, 0x20, 0);
const PARAMETER_LIST_LENGTH: (u8, u8, u8) = (5, 0x1a, 0);
const INVALID_FIELD_IN_LIST: (u8, u8, u8) = (5, 0x26, 0);
const WRONG_DATA_LENGTH: (u8, u8, u8) = (5, 0x0e, 3);

fn info() -> VolumeInfo {
    VolumeInfo {
        block_size: BLOCK as u32,
        physical_block: 4096,
        blocks: BLOCKS,
        write_cache: true,
        write_cache_changeable: true,
        rotation: Rotation::Rpm(7200),
        discard: Some(Discard { granularity: 8, alignment: 0, max_blocks: u32::MAX, reads_zeroes: true }),
        max_transfer: 1 << 16,
        read_only: false,
        ready: true,
    }
}

fn unit(lun: u16) -> UnitConfig {
    let identity = Identity {
        vendor: *b"PLATTER ",
        product: *b"VIRTUAL DISK    ",
        revision: *b"0.1 ",
        serial: "P1234567".to_owned(),
        naa: [0x30, 1, 2, 3, 4, 5, 6, 7],
    };
    UnitConfig::new(lun, VolumeId(7), info(), identity)
}

impl Bench {
    fn new() -> Self {
        Self::with(unit(0))
    }

    fn with(unit: UnitConfig) -> Self {
        Self::with_units(vec![unit])
    }

    fn with_units(units: Vec<UnitConfig>) -> Self {
        let luns: Vec<u16> = units.iter().map(|u| u.lun).collect();
        let config = DeviceConfig { name: "iqn.2026-01.net.example:t".to_owned(), portal_group: 1, units };
        let mut bench = Self {
            device: Device::new(config),
            pool: stale_pool(),
            medium: vec![0; BLOCK * BLOCKS as usize],
            mapped: vec![false; BLOCKS as usize],
            ops: Vec::new(),
            fail_next: None,
            lun: LUN0,
        };
        for nexus in [ONE, TWO] {
            bench.device.nexus_established(nexus, "iqn.2026-01.net.example:i,i,0x1");
            for &lun in &luns {
                bench.lun = super::lun::encode(lun);
                bench.clear_attentions(nexus);
            }
        }
        bench.lun = LUN0;
        bench
    }

    /// Reads all pending unit attentions of the unit in use.
    fn clear_attentions(&mut self, nexus: NexusId) -> Vec<(u8, u8)> {
        let mut codes = Vec::new();
        loop {
            let sense = self.run_as(nexus, &[0x03, 0, 0, 0, 18, 0], &[], 18).data;
            if sense[2] != 6 {
                return codes;
            }
            codes.push((sense[12], sense[13]));
        }
    }

    /// A command without data.
    fn none(&mut self, cdb: &[u8]) -> Ended {
        self.run_as(ONE, cdb, &[], 0)
    }

    /// A command that reads.
    fn read(&mut self, cdb: &[u8], in_len: u32) -> Ended {
        self.run_as(ONE, cdb, &[], in_len)
    }

    /// A command that writes.
    fn write(&mut self, cdb: &[u8], out: &[u8]) -> Ended {
        self.run_as(ONE, cdb, out, 0)
    }

    fn run_as(&mut self, nexus: NexusId, cdb: &[u8], out: &[u8], in_len: u32) -> Ended {
        let (mut task, mut step) = self.start(nexus, cdb, out.len() as u32, in_len);
        loop {
            step = match step {
                Step::Receive { buf, len } => {
                    assert!(len > 0 && len <= out.len(), "asks for {len} of {} bytes", out.len());
                    self.pool.bytes_mut(buf)[..len].copy_from_slice(&out[..len]);
                    self.device.received(&mut task, &mut self.pool)
                }
                Step::Submit { op, .. } => {
                    let (status, report) = self.perform(op);
                    self.device.completed(&mut task, status, report, &mut self.pool)
                }
                Step::Reply(reply) => return self.end(reply),
            }
        }
    }

    fn start(&mut self, nexus: NexusId, cdb: &[u8], out_len: u32, in_len: u32) -> (Task, Step) {
        let command = Command { lun: self.lun, cdb, attribute: Attribute::Simple, out_len, in_len };
        self.device.start(nexus, command, &mut self.pool)
    }

    fn end(&mut self, reply: Reply) -> Ended {
        assert_eq!(reply.sense.is_some(), reply.status == ScsiStatus::CHECK_CONDITION);
        let mut data = Vec::new();
        if let Some(d) = reply.data {
            assert!(d.len > 0 && d.len as u64 <= reply.in_transfer, "{d:?} of {}", reply.in_transfer);
            data = self.pool.bytes(d.buf)[d.at..d.at + d.len].to_vec();
            self.pool.free(d.buf);
        }
        assert_eq!(self.pool.in_use(), 0, "a buffer leaked");
        Ended {
            status: reply.status,
            sense: reply.sense.map(|s| s.as_bytes().to_vec()).unwrap_or_default(),
            data,
            out_transfer: reply.out_transfer,
            in_transfer: reply.in_transfer,
        }
    }

    /// Does an op as a volume would.
    fn perform(&mut self, op: Op) -> (Status, Option<Box<Report>>) {
        self.ops.push(op);
        if let Some(range) = op.range() {
            assert!(range.within(BLOCKS), "{op:?} is out of range");
        }
        if let Some(status) = self.fail_next.take() {
            return (status, None);
        }
        match op {
            Op::Read { lba, count, buf } => {
                let from = self.medium[bytes(lba, count)].to_vec();
                self.buffer(buf, from.len(), 1).copy_from_slice(&from);
            }
            Op::Write { lba, count, buf, .. } => {
                let data = self.buffer(buf, bytes(lba, count).len(), 1).to_vec();
                self.store(lba, &data, true);
            }
            Op::WriteZeroes { lba, count, may_unmap, .. } => {
                self.store(lba, &vec![0; bytes(lba, count).len()], !may_unmap);
            }
            Op::Unmap { lba, count } => self.store(lba, &vec![0; bytes(lba, count).len()], false),
            Op::CompareAndWrite { lba, count, buf, .. } => {
                let range = bytes(lba, count);
                let data = self.buffer(buf, range.len(), 3)[..2 * range.len()].to_vec();
                let (compare, write) = data.split_at(range.len());
                let differs = compare.iter().zip(&self.medium[range]).position(|(a, b)| a != b);
                if let Some(offset) = differs {
                    return (Status::MiscompareAt { offset: offset as u64 }, None);
                }
                self.store(lba, write, true);
            }
            Op::OrWrite { lba, count, buf, .. } => {
                let range = bytes(lba, count);
                let mask = self.buffer(buf, range.len(), 2)[..range.len()].to_vec();
                let data: Vec<u8> = mask.iter().zip(&self.medium[range]).map(|(a, b)| a | b).collect();
                self.store(lba, &data, true);
            }
            Op::BlockStatus { lba, count } => {
                let blocks = lba.0..lba.0 + u64::from(count.0);
                let mut extents: Vec<Extent> = Vec::new();
                for block in blocks {
                    let mapped = self.mapped[block as usize];
                    match extents.last_mut().filter(|e| e.mapped == mapped) {
                        Some(extent) => extent.count.0 += 1,
                        None => extents.push(Extent { lba: Lba(block), count: BlockCount(1), mapped }),
                    }
                }
                return (Status::Good, Some(Box::new(Report::Extents(extents))));
            }
            Op::Flush | Op::SetWriteCache { .. } => {}
        }
        (Status::Good, None)
    }

    /// The first `parts * len` bytes of a buffer, which must be there.
    fn buffer(&mut self, buf: BufId, len: usize, parts: usize) -> &mut [u8] {
        &mut self.pool.bytes_mut(buf)[..parts * len]
    }

    fn store(&mut self, lba: Lba, data: &[u8], mapped: bool) {
        let at = lba.0 as usize;
        self.medium[at * BLOCK..at * BLOCK + data.len()].copy_from_slice(data);
        self.mapped[at..at + data.len() / BLOCK].fill(mapped);
    }
}

fn bytes(lba: Lba, count: BlockCount) -> std::ops::Range<usize> {
    let at = lba.0 as usize * BLOCK;
    at..at + count.0 as usize * BLOCK
}

/// A pool whose spare memory is full of bytes that nobody may ever see.
fn stale_pool() -> BufPool {
    let mut pool = BufPool::new(64 << 20);
    let sizes = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
    let bufs: Vec<BufId> = sizes.iter().flat_map(|&n| [n; 3]).map(|n| pool.alloc(n).unwrap()).collect();
    for buf in bufs {
        pool.bytes_mut(buf).fill(0xa5);
        pool.free(buf);
    }
    pool
}

/// A CDB of 16 bytes with an LBA and a length.
fn cdb16(opcode: u8, flags: u8, lba: u64, count: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[1] = flags;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&count.to_be_bytes());
    cdb
}

/// A CDB of 10 bytes with an LBA and a length.
fn cdb10(opcode: u8, flags: u8, lba: u32, count: u16) -> [u8; 10] {
    let mut cdb = [0; 10];
    cdb[0] = opcode;
    cdb[1] = flags;
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&count.to_be_bytes());
    cdb
}
