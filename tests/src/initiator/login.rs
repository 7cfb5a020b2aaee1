//! From a connection to full feature phase (RFC 7143 6.3): security stage without authentication, operational stage, done.

use super::pdu::{FINAL, Header, IMMEDIATE, field, opcode};
use super::wire::Wire;
use super::{Error, Result, keys, require};
use std::time::Duration;

/// Byte 1 of login PDUs: the text goes on in the next one.
const CONTINUE: u8 = 0x40;
const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;
/// Rounds after which a login that gets nowhere is given up.
const MAX_ROUNDS: usize = 32;

/// Whether digests are offered (13.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Digests {
    /// `None` is offered.
    #[default]
    Off,
    /// `CRC32C,None` is offered, and the answer must be CRC32C.
    On,
}

/// What is offered at login.
#[derive(Clone, Debug)]
pub struct LoginOptions {
    /// InitiatorName.
    pub initiator: String,
    /// TargetName; `None` for a discovery session.
    pub target: Option<String>,
    /// The part of the ISID that tells the sessions of one initiator to one target apart.
    pub isid: u32,
    /// HeaderDigest.
    pub header_digest: Digests,
    /// DataDigest.
    pub data_digest: Digests,
    /// MaxRecvDataSegmentLength that we declare.
    pub max_recv_segment: u32,
    /// MaxBurstLength.
    pub max_burst: u32,
    /// FirstBurstLength.
    pub first_burst: u32,
    /// ImmediateData.
    pub immediate_data: bool,
    /// InitialR2T; false allows unsolicited Data-Out.
    pub initial_r2t: bool,
    /// MaxOutstandingR2T.
    pub max_outstanding_r2t: u32,
    /// First CmdSN; a value shortly before 2^32 tests the wrap.
    pub first_cmd_sn: u32,
    /// Rules that targets in the field are known to break are checked too; of these there is one: the length of a Data-In
    /// sequence (13.13). True unless the target is a peer that is only compared with.
    pub strict: bool,
    /// The longest wait for anything of the target.
    pub timeout: Duration,
}

impl LoginOptions {
    /// A normal session with `target`, as a modern initiator would open it.
    pub fn to(target: &str) -> Self {
        Self {
            initiator: "iqn.2026-11.org.platter.test:initiator".into(),
            target: Some(target.into()),
            isid: 1,
            header_digest: Digests::Off,
            data_digest: Digests::Off,
            max_recv_segment: 256 << 10,
            max_burst: 1 << 20,
            first_burst: 64 << 10,
            immediate_data: true,
            initial_r2t: true,
            max_outstanding_r2t: 1,
            first_cmd_sn: 1,
            strict: true,
            timeout: Duration::from_secs(30),
        }
    }

    /// A discovery session.
    pub fn discovery() -> Self {
        Self { target: None, ..Self::to("") }
    }

    /// The session of another initiator port.
    #[must_use]
    pub fn with_isid(mut self, isid: u32) -> Self {
        self.isid = isid;
        self
    }

    /// With both digests.
    #[must_use]
    pub fn with_digests(mut self) -> Self {
        (self.header_digest, self.data_digest) = (Digests::On, Digests::On);
        self
    }

    /// The first header of a login: security stage, asking for the operational one.
    pub fn first_header(&self) -> Header {
        let mut header = Header::new(opcode::LOGIN | IMMEDIATE, FINAL | SECURITY << 2 | OPERATIONAL);
        // Type 10b, random (11.12.5): 24 random bits, of which the tests use none, and a 16-bit qualifier.
        header.0[8] = 0x80;
        header.0[10..14].copy_from_slice(&self.isid.to_be_bytes());
        header.set(field::CMD_SN, self.first_cmd_sn);
        header
    }

    /// The keys of the security stage.
    pub fn security_keys(&self) -> Vec<(&'static str, String)> {
        let mut keys = vec![("InitiatorName", self.initiator.clone())];
        match &self.target {
            Some(target) => keys.extend([("SessionType", "Normal".into()), ("TargetName", target.clone())]),
            None => keys.push(("SessionType", "Discovery".into())),
        }
        keys.push(("AuthMethod", "None".into()));
        keys
    }

    fn operational_keys(&self) -> Vec<(&'static str, String)> {
        let digest = |d| if d == Digests::On { "CRC32C,None" } else { "None" }.to_owned();
        let mut keys = vec![
            ("HeaderDigest", digest(self.header_digest)),
            ("DataDigest", digest(self.data_digest)),
            ("MaxRecvDataSegmentLength", self.max_recv_segment.to_string()),
            ("DefaultTime2Wait", "2".into()),
            ("DefaultTime2Retain", "0".into()),
            ("ErrorRecoveryLevel", "0".into()),
        ];
        if self.target.is_some() {
            keys.extend([
                ("InitialR2T", yes_no(self.initial_r2t)),
                ("ImmediateData", yes_no(self.immediate_data)),
                ("MaxBurstLength", self.max_burst.to_string()),
                ("FirstBurstLength", self.first_burst.to_string()),
                ("MaxOutstandingR2T", self.max_outstanding_r2t.to_string()),
                ("MaxConnections", "1".into()),
                ("DataPDUInOrder", "Yes".into()),
                ("DataSequenceInOrder", "Yes".into()),
            ]);
        }
        keys
    }
}

fn yes_no(yes: bool) -> String {
    if yes { "Yes" } else { "No" }.into()
}

/// What was agreed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// TSIH that the target gave.
    pub tsih: u16,
    /// CRC32C on headers.
    pub header_digest: bool,
    /// CRC32C on data.
    pub data_digest: bool,
    /// What the target declared: no data segment of ours is longer.
    pub max_send_segment: u32,
    /// MaxBurstLength.
    pub max_burst: u32,
    /// FirstBurstLength.
    pub first_burst: u32,
    /// ImmediateData.
    pub immediate_data: bool,
    /// InitialR2T.
    pub initial_r2t: bool,
    /// MaxOutstandingR2T.
    pub max_outstanding_r2t: u32,
    /// As in the options.
    pub strict: bool,
    /// ExpStatSN after the login.
    pub exp_stat_sn: u32,
    /// ExpCmdSN of the last login response.
    pub exp_cmd_sn: u32,
    /// MaxCmdSN of the last login response.
    pub max_cmd_sn: u32,
}

/// Logs in on a fresh connection. Afterwards `wire` has the agreed digests.
pub(super) fn login(wire: &mut Wire, options: &LoginOptions) -> Result<Parameters> {
    let mut exchange = Exchange { wire, header: options.first_header(), next_stat_sn: None };
    exchange.stage(SECURITY, OPERATIONAL, &options.security_keys())?;
    let (answers, last) = exchange.stage(OPERATIONAL, FULL_FEATURE, &options.operational_keys())?;
    let exp_stat_sn = exchange.next_stat_sn.unwrap_or_default();
    let parameters = agree(options, &answers, &last, exp_stat_sn)?;
    wire.set_digests(parameters.header_digest, parameters.data_digest);
    wire.set_max_segment(options.max_recv_segment as usize);
    Ok(parameters)
}

struct Exchange<'a> {
    wire: &'a mut Wire,
    header: Header,
    next_stat_sn: Option<u32>,
}

impl Exchange<'_> {
    /// Offers `offer` in stage `from` and asks for `to` until the target goes there. Returns all its keys of the stage.
    fn stage(&mut self, from: u8, to: u8, offer: &[(&str, String)]) -> Result<(keys::Pairs, Header)> {
        let mut text = keys::encode(offer.iter().map(|(k, v)| (*k, v.as_str())));
        let mut answer = Vec::new();
        for _ in 0..MAX_ROUNDS {
            self.header.0[1] = FINAL | from << 2 | to;
            if let Some(sn) = self.next_stat_sn {
                self.header.set(field::EXP_STAT_SN, sn);
            }
            self.wire.send(self.header, &text)?;
            text.clear();
            let response = self.wire.recv()?;
            self.check(&response.header)?;
            answer.extend_from_slice(&response.data);
            let flags = response.header.flags();
            let (transit, goes_on) = (flags & FINAL != 0, flags & CONTINUE != 0);
            require(!(transit && goes_on), || "T and C both set (11.13.6)".into())?;
            require(flags >> 2 & 3 == from, || format!("CSG {} in stage {from} (11.13.3)", flags >> 2 & 3))?;
            if transit {
                require(flags & 3 == to, || format!("NSG {} where {to} was asked for (11.13.6)", flags & 3))?;
                return Ok((keys::decode(&answer)?, response.header));
            }
        }
        Err(Error::Violation(format!("no transition from stage {from} within {MAX_ROUNDS} rounds (6.3)")))
    }

    fn check(&mut self, response: &Header) -> Result<()> {
        require(response.opcode() == opcode::LOGIN_RESPONSE, || {
            format!("opcode {:02x}h where a Login Response was due (6.3)", response.opcode())
        })?;
        let (class, detail) = (response.0[36], response.0[37]);
        if class != 0 {
            return Err(Error::LoginRefused { class, detail });
        }
        require(response.tag() == self.header.tag(), || "ITT of the Login Response (11.13)".into())?;
        require(response.0[3] == 0, || format!("Version-active {} (11.13.2)", response.0[3]))?;
        require(response.0[8..14] == self.header.0[8..14], || "ISID of the Login Response (11.13)".into())?;
        let stat_sn = response.get(field::STAT_SN);
        if let Some(expected) = self.next_stat_sn {
            require(stat_sn == expected, || format!("StatSN {stat_sn} where {expected} was due (11.13.4)"))?;
        }
        self.next_stat_sn = Some(stat_sn.wrapping_add(1));
        Ok(())
    }
}

/// Checks each answer against what was offered and collects the result.
fn agree(options: &LoginOptions, answers: &keys::Pairs, last: &Header, exp_stat_sn: u32) -> Result<Parameters> {
    let tsih = u16::from_be_bytes([last.0[14], last.0[15]]);
    require(tsih != 0, || "TSIH 0 in the last Login Response (11.13.3)".into())?;
    let digest = |key, offered: Digests| {
        let answer = keys::find(answers, key)?;
        match (answer, offered) {
            (Some("CRC32C"), Digests::On) => Ok(true),
            (Some("None") | None, Digests::Off) => Ok(false),
            // "CRC32C,None" lists CRC32C first, and every target must implement it (13.1).
            _ => require(false, || format!("{key}={answer:?} to an offer of {offered:?} (13.1)")).map(|()| false),
        }
    };
    let minimum = |key, offered: u32, default: u32| -> Result<u32> {
        let value = keys::number(answers, key, 1..=(1 << 24) - 1)?.unwrap_or(offered.min(default));
        require(value <= offered, || format!("{key}={value} to an offer of {offered}: result is the minimum (13)"))?;
        Ok(value)
    };
    let initial_r2t = keys::boolean(answers, "InitialR2T")?.unwrap_or(true);
    require(initial_r2t || !options.initial_r2t, || "InitialR2T=No to an offer of Yes: result is OR (13.10)".into())?;
    let immediate_data = keys::boolean(answers, "ImmediateData")?.unwrap_or(options.immediate_data);
    require(!immediate_data || options.immediate_data, || {
        "ImmediateData=Yes to an offer of No: result is AND (13.11)".into()
    })?;
    let parameters = Parameters {
        tsih,
        header_digest: digest("HeaderDigest", options.header_digest)?,
        data_digest: digest("DataDigest", options.data_digest)?,
        max_send_segment: keys::number(answers, "MaxRecvDataSegmentLength", 512..=(1 << 24) - 1)?.unwrap_or(8192),
        max_burst: minimum("MaxBurstLength", options.max_burst, 262_144)?,
        first_burst: minimum("FirstBurstLength", options.first_burst, 65_536)?,
        immediate_data,
        initial_r2t,
        max_outstanding_r2t: minimum("MaxOutstandingR2T", options.max_outstanding_r2t, 1)?,
        strict: options.strict,
        exp_stat_sn,
        exp_cmd_sn: last.get(field::EXP_CMD_SN),
        max_cmd_sn: last.get(field::MAX_CMD_SN),
    };
    require(parameters.first_burst <= parameters.max_burst, || {
        format!("FirstBurstLength {} > MaxBurstLength {} (13.14)", parameters.first_burst, parameters.max_burst)
    })?;
    Ok(parameters)
}
