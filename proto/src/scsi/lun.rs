//! Logical unit numbers (SAM-5 4.7).

/// The eight bytes of a LUN field, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lun {
    /// Peripheral device addressing (method 00b, bus 0), flat space addressing (01b) or extended flat space (not used).
    Unit(u16),
    /// The REPORT LUNS well-known logical unit (C1h 01h).
    ReportLuns,
    /// Any other addressing method or another level: names nothing here.
    Unknown,
}

/// Largest number of flat space addressing.
pub(super) const MAX_LUN: u16 = 0x3fff;

impl Lun {
    /// Decodes a LUN field. Everything below the first level must be zero.
    pub(super) fn decode(raw: [u8; 8]) -> Self {
        if raw[2..].iter().any(|&b| b != 0) {
            return Self::Unknown;
        }
        match (raw[0] >> 6, raw[0] & 0x3f) {
            (0b00, 0) => Self::Unit(u16::from(raw[1])),
            (0b01, high) => Self::Unit(u16::from(high) << 8 | u16::from(raw[1])),
            (0b11, 0x01) if raw[1] == 0x01 => Self::ReportLuns,
            _ => Self::Unknown,
        }
    }
}

/// Encodes a number for REPORT LUNS: peripheral device addressing below 256, else flat space addressing.
pub(super) fn encode(lun: u16) -> [u8; 8] {
    debug_assert!(lun <= MAX_LUN);
    let [high, low] = lun.to_be_bytes();
    let method = if lun < 256 { 0 } else { 0x40 };
    [method | high, low, 0, 0, 0, 0, 0, 0]
}

/// The REPORT LUNS well-known logical unit.
pub(super) const REPORT_LUNS_WLUN: [u8; 8] = [0xc1, 0x01, 0, 0, 0, 0, 0, 0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_methods_name_the_same_unit_and_encode_round_trips() {
        assert_eq!(Lun::decode([0, 5, 0, 0, 0, 0, 0, 0]), Lun::Unit(5));
        assert_eq!(Lun::decode([0x40, 5, 0, 0, 0, 0, 0, 0]), Lun::Unit(5));
        for lun in [0, 1, 255, 256, 257, MAX_LUN] {
            assert_eq!(Lun::decode(encode(lun)), Lun::Unit(lun));
        }
        assert_eq!(Lun::decode(REPORT_LUNS_WLUN), Lun::ReportLuns);
    }

    #[test]
    fn k03_other_methods_buses_and_levels_name_nothing() {
        for raw in [[0x80, 0], [0xc0, 0], [0xc1, 0x02], [0xd2, 0], [0x01, 0], [0x3f, 0]] {
            assert_eq!(Lun::decode([raw[0], raw[1], 0, 0, 0, 0, 0, 0]), Lun::Unknown, "{raw:x?}");
        }
        assert_eq!(Lun::decode([0, 0, 0, 1, 0, 0, 0, 0]), Lun::Unknown);
        assert_eq!(Lun::decode([0, 0, 0, 0, 0, 0, 0, 1]), Lun::Unknown);
    }
}
