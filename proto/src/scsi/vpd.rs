//! Vital product data pages (SPC-4 7.8, SBC-3 6.6). Everything that tells what the unit can do is read from the volume at
//! the moment of the question; everything that tells who it is comes from the configuration and never changes.

use platter_block::Rotation;

use super::inquiry::peripheral;
use super::task::{Call, Target};
use super::unit::{MAX_SAME, Unit};
use super::unmap;

/// A page with its header, or `None` if the target of the command does not have it.
pub(super) fn page(call: &Call<'_>, code: u8) -> Option<Vec<u8>> {
    let body = match (code, call.find_unit()) {
        (0x00, Some(_)) => vec![0x00, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2],
        (0x80, Some(unit)) => unit.config.identity.serial.as_bytes().to_vec(),
        (0x83, unit) if unit.is_some() || call.task.target == Target::ReportLuns => device_identification(call, unit),
        (0x86, Some(unit)) => extended_inquiry(unit),
        (0xb0, Some(unit)) => block_limits(unit),
        (0xb1, Some(unit)) => block_device_characteristics(unit),
        (0xb2, Some(unit)) => logical_block_provisioning(unit),
        (0x00, None) if call.task.target == Target::ReportLuns => vec![0x00, 0x83],
        (0x00, None) => vec![0x00],
        _ => return None,
    };
    let len = u16::try_from(body.len()).expect("pages are short").to_be_bytes();
    Some([&[peripheral(call.task.target), code, len[0], len[1]], body.as_slice()].concat())
}

/// A page body, the bytes at each offset of the whole page (header included) set; the rest is zero.
fn body<const LEN: usize>(fields: &[(usize, &[u8])]) -> Vec<u8> {
    const HEADER: usize = 4;
    let mut body = vec![0; LEN];
    for (at, bytes) in fields {
        body[at - HEADER..at - HEADER + bytes.len()].copy_from_slice(bytes);
    }
    body
}

/// 83h Device Identification: the unit by NAA, T10 vendor ID and name string; the target port; the target device.
fn device_identification(call: &Call<'_>, unit: Option<&Unit>) -> Vec<u8> {
    let mut designators = Vec::new();
    if let Some(unit) = unit {
        let identity = &unit.config.identity;
        let naa_name: String = identity.naa.iter().map(|b| format!("{b:02X}")).collect();
        let t10 = [&identity.vendor[..], identity.serial.as_bytes()].concat();
        designator(&mut designators, Association::Unit, Kind::Naa, &identity.naa);
        designator(&mut designators, Association::Unit, Kind::T10Vendor, &t10);
        designator(&mut designators, Association::Unit, Kind::NameString, &name_string(&format!("naa.{naa_name}")));
    }
    let device = &*call.device;
    let port = format!("{},t,0x{:04x}", device.name, device.portal_group);
    designator(&mut designators, Association::Port, Kind::RelativePort, &[0, 0, 0, 1]);
    designator(&mut designators, Association::Port, Kind::NameString, &name_string(&port));
    designator(&mut designators, Association::Device, Kind::NameString, &name_string(&device.name));
    designators
}

#[derive(Clone, Copy)]
enum Association {
    Unit = 0,
    Port = 1,
    Device = 2,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    T10Vendor = 1,
    Naa = 3,
    RelativePort = 4,
    NameString = 8,
}

/// Appends a designation descriptor (SPC-4 7.8.6.1).
fn designator(to: &mut Vec<u8>, association: Association, kind: Kind, designator: &[u8]) {
    const PROTOCOL_ISCSI: u8 = 0x50;
    const PIV: u8 = 0x80;
    let code_set: u8 = match kind {
        Kind::Naa | Kind::RelativePort => 1,
        Kind::T10Vendor => 2,
        Kind::NameString => 3,
    };
    let (protocol, piv) = match association {
        Association::Unit => (0, 0),
        Association::Port | Association::Device => (PROTOCOL_ISCSI, PIV),
    };
    let len = u8::try_from(designator.len()).expect("names are at most 223 bytes, serial numbers 64");
    to.extend_from_slice(&[protocol | code_set, piv | (association as u8) << 4 | kind as u8, 0, len]);
    to.extend_from_slice(designator);
}

/// SCSI name string: UTF-8, terminated, padded with zeroes to a multiple of four.
fn name_string(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize((bytes.len() + 1).next_multiple_of(4), 0);
    bytes
}

/// 86h Extended INQUIRY Data.
fn extended_inquiry(unit: &Unit) -> Vec<u8> {
    const HEADSUP_ORDSUP_SIMPSUP: u8 = 0x07;
    const V_SUP: u8 = 0x01;
    let volatile = if unit.info().write_cache_changeable { V_SUP } else { 0 };
    body::<0x3c>(&[(5, &[HEADSUP_ORDSUP_SIMPSUP]), (6, &[volatile])])
}

/// B0h Block Limits.
fn block_limits(unit: &Unit) -> Vec<u8> {
    let info = unit.info();
    let granularity = u16::try_from(info.physical_block / info.block_size).unwrap_or(u16::MAX);
    let max_transfer = unit.max_transfer();
    let discard = info.discard;
    let max_unmap = discard.map_or(0, |_| unmap::MAX_BLOCKS);
    let max_unmap_descriptors = discard.map_or(0, |_| unmap::MAX_DESCRIPTORS);
    let unmap_granularity = discard.map_or(0, |d| d.granularity);
    const UGAVALID: u32 = 1 << 31;
    let unmap_alignment = discard.map_or(0, |d| UGAVALID | d.alignment & !UGAVALID);
    body::<0x3c>(&[
        // 4: WSNZ 0.
        (5, &[unit.max_compare()]),
        (6, &granularity.to_be_bytes()),
        (8, &max_transfer.to_be_bytes()),
        // 12: OPTIMAL TRANSFER LENGTH, not known; 16: MAXIMUM PREFETCH LENGTH, no limit.
        (20, &max_unmap.to_be_bytes()),
        (24, &max_unmap_descriptors.to_be_bytes()),
        (28, &unmap_granularity.to_be_bytes()),
        (32, &unmap_alignment.to_be_bytes()),
        (36, &u64::from(MAX_SAME).to_be_bytes()),
        // 44 to 63: atomic writes, none.
    ])
}

/// B1h Block Device Characteristics. ZONED is 00b: a volume is written in any order.
fn block_device_characteristics(unit: &Unit) -> Vec<u8> {
    let rotation_rate: u16 = match unit.info().rotation {
        Rotation::Unknown => 0,
        Rotation::NonRotating => 1,
        // 0002h to 0400h are reserved, and so is FFFFh.
        Rotation::Rpm(rpm @ 0x0401..=0xfffe) => rpm,
        Rotation::Rpm(_) => 0,
    };
    body::<0x3c>(&[(4, &rotation_rate.to_be_bytes())])
}

/// B2h Logical Block Provisioning.
fn logical_block_provisioning(unit: &Unit) -> Vec<u8> {
    const LBPU_LBPWS_LBPWS10: u8 = 0xe0;
    const LBPRZ: u8 = 0x04;
    const THIN: u8 = 0x02;
    match unit.info().discard {
        Some(discard) => {
            let flags = LBPU_LBPWS_LBPWS10 | if discard.reads_zeroes { LBPRZ } else { 0 };
            body::<4>(&[(5, &[flags]), (6, &[THIN])])
        }
        None => body::<4>(&[]),
    }
}
