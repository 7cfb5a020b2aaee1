//! SGL descriptor 1 of a command, as this transport knows it (NVMe/TCP, Data Transfer Model; NVMe base, Scatter Gather List).

use crate::nvme::{Status, Transfer};

/// Type and sub type of a data block inside the capsule, whose address is an offset.
const IN_CAPSULE: u8 = 0x01;
/// Type and sub type of a transport data block: bytes that move in PDUs of their own.
const TRANSPORT: u8 = 0x5a;
/// PSDT: SGLs are used, metadata are contiguous.
const PSDT_SGL: u8 = 0b01;
/// Opcode of the Fabrics commands.
const FABRICS: u8 = 0x7f;

const INVALID_FIELD: Status = Status::new(0, 0x02);
const LENGTH_INVALID: Status = Status::new(0, 0x0f);
const TYPE_INVALID: Status = Status::new(0, 0x11);
const OFFSET_INVALID: Status = Status::new(0, 0x16);

/// What a command moves. `in_capsule` bytes of data came with it in its capsule.
pub(super) fn transfer(sqe: &[u8; 64], in_capsule: u32) -> Result<Transfer, Status> {
    // Byte 1 is reserved in Fabrics commands of earlier revisions.
    if sqe[0] != FABRICS && sqe[1] >> 6 != PSDT_SGL {
        return Err(INVALID_FIELD);
    }
    let descriptor = &sqe[24..40];
    let (address, len) = (&descriptor[..8], u32::from_le_bytes(descriptor[8..12].try_into().expect("four bytes")));
    match descriptor[15] {
        IN_CAPSULE if address != [0; 8] => Err(OFFSET_INVALID),
        IN_CAPSULE | TRANSPORT if in_capsule == 0 && len == 0 => Ok(Transfer { len: 0, in_capsule: false }),
        IN_CAPSULE if len == in_capsule => Ok(Transfer { len, in_capsule: true }),
        TRANSPORT if in_capsule == 0 => Ok(Transfer { len, in_capsule: false }),
        IN_CAPSULE | TRANSPORT => Err(LENGTH_INVALID),
        // A command without data need not have a descriptor.
        _ if descriptor == [0; 16] && in_capsule == 0 => Ok(Transfer { len: 0, in_capsule: false }),
        _ => Err(TYPE_INVALID),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: u8 = 0x01;

    fn sqe(opcode: u8, flags: u8, address: u64, len: u32, kind: u8) -> [u8; 64] {
        let mut sqe = [0; 64];
        (sqe[0], sqe[1], sqe[39]) = (opcode, flags, kind);
        sqe[24..32].copy_from_slice(&address.to_le_bytes());
        sqe[32..36].copy_from_slice(&len.to_le_bytes());
        sqe
    }

    #[test]
    fn the_two_descriptors_of_this_transport() {
        let moves = |len, in_capsule| Ok(Transfer { len, in_capsule });
        assert_eq!(transfer(&sqe(WRITE, 0x40, 0, 4096, 0x01), 4096), moves(4096, true));
        assert_eq!(transfer(&sqe(WRITE, 0x40, 0, 4096, 0x5a), 0), moves(4096, false));
        assert_eq!(transfer(&sqe(WRITE, 0x40, 7, 0xffff_ffff, 0x5a), 0), moves(0xffff_ffff, false));
        assert_eq!(transfer(&sqe(0, 0x40, 0, 0, 0x5a), 0), moves(0, false));
        assert_eq!(transfer(&sqe(0, 0x40, 0, 0, 0x01), 0), moves(0, false));
        assert_eq!(transfer(&sqe(0, 0x40, 0, 0, 0x00), 0), moves(0, false));
    }

    #[test]
    fn n04_other_descriptors_are_of_an_invalid_type() {
        for kind in (0..=255).filter(|k| ![0x01, 0x5a].contains(k)) {
            assert_eq!(transfer(&sqe(WRITE, 0x40, 0, 4096, kind), 0), Err(TYPE_INVALID), "{kind:#x}");
            assert_eq!(transfer(&sqe(WRITE, 0x40, 0, 0, kind), 8), Err(TYPE_INVALID), "{kind:#x}");
        }
        assert_eq!(TYPE_INVALID, Status(0x4011));
    }

    #[test]
    fn s08_in_capsule_data_start_at_0_and_are_as_long_as_the_capsule_says() {
        assert_eq!(transfer(&sqe(WRITE, 0x40, 4, 4096, 0x01), 4096), Err(Status(0x4016)));
        for (len, came) in [(4095, 4096), (4097, 4096), (4096, 0), (0, 4096), (u32::MAX, 4096)] {
            assert_eq!(transfer(&sqe(WRITE, 0x40, 0, len, 0x01), came), Err(Status(0x400f)), "{len} {came}");
        }
        assert_eq!(
            transfer(&sqe(WRITE, 0x40, 0, 4096, 0x5a), 4096),
            Err(Status(0x400f)),
            "data that nothing describes"
        );
    }

    #[test]
    fn commands_use_sgls_and_those_of_fabrics_need_not_say_so() {
        for psdt in [0x00, 0x80, 0xc0] {
            assert_eq!(transfer(&sqe(WRITE, psdt, 0, 512, 0x5a), 0), Err(Status(0x4002)));
            assert!(transfer(&sqe(FABRICS, psdt, 0, 1024, 0x01), 1024).is_ok());
        }
    }
}
