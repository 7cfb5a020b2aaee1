//! Operational parameters: one table of keys (13), and what follows from it.

use super::config::Limits;
use super::deframe::LOGIN_DATA_SEGMENT;
use super::node::SessionKind;
use super::text;

/// What was negotiated for a session and its connection. Starts with the defaults of 13.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Params {
    pub(super) header_digest: bool,
    pub(super) data_digest: bool,
    /// MaxRecvDataSegmentLength of the initiator: the longest data segment we send.
    pub(super) max_send_segment: u32,
    pub(super) max_burst: u32,
    pub(super) first_burst: u32,
    pub(super) initial_r2t: bool,
    pub(super) immediate_data: bool,
    pub(super) max_outstanding_r2t: u16,
    pub(super) time2wait: u16,
    pub(super) time2retain: u16,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            header_digest: false,
            data_digest: false,
            max_send_segment: LOGIN_DATA_SEGMENT,
            max_burst: 256 << 10,
            first_burst: 64 << 10,
            initial_r2t: true,
            immediate_data: true,
            max_outstanding_r2t: 1,
            time2wait: 2,
            time2retain: 20,
        }
    }
}

/// The stage or phase in which a key comes (11.12.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// SecurityNegotiation, 0.
    Security,
    /// LoginOperationalNegotiation, 1.
    Operational,
    /// FullFeaturePhase, 3.
    FullFeature,
}

impl Stage {
    /// From a CSG or NSG field; 2 is reserved.
    pub(super) const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Security),
            1 => Some(Self::Operational),
            3 => Some(Self::FullFeature),
            _ => None,
        }
    }

    /// As a CSG or NSG field.
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Security => 0,
            Self::Operational => 1,
            Self::FullFeature => 3,
        }
    }
}

/// When an initiator may send a key ("Use" and "Senders" in 13).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    /// Any stage of the login.
    Login,
    /// Any stage of the login, and full feature phase.
    Always,
    /// Operational stage of the login.
    Operational,
    /// Operational stage of the login, and full feature phase.
    OperationalOrFullFeature,
    /// Security stage of the login.
    Security,
    /// Full feature phase.
    FullFeature,
    /// Sent by targets only.
    Never,
}

impl Use {
    const fn allows(self, stage: Stage) -> bool {
        match self {
            Self::Login => !matches!(stage, Stage::FullFeature),
            Self::Always => true,
            Self::Operational => matches!(stage, Stage::Operational),
            Self::OperationalOrFullFeature => !matches!(stage, Stage::Security),
            Self::Security => matches!(stage, Stage::Security),
            Self::FullFeature => matches!(stage, Stage::FullFeature),
            Self::Never => false,
        }
    }
}

/// How the value of a key is found.
enum Rule {
    /// Declared by the initiator, taken up by the login itself; no answer.
    Declared,
    /// A number declared by the initiator; no answer.
    DeclaredNumber(Range, fn(&mut Params) -> &mut u32),
    /// The smaller of the two.
    Minimum(Range, fn(&Limits) -> u64, fn(&mut Params, u64)),
    /// The larger of the two.
    Maximum(Range, u64, fn(&mut Params, u64)),
    /// Yes only if both want it.
    And(fn(&Limits) -> bool, fn(&mut Params, bool)),
    /// Yes if one of the two wants it.
    Or(fn(&Limits) -> bool, fn(&mut Params, bool)),
    /// CRC32C or None, whatever the initiator prefers.
    Digest(fn(&mut Params) -> &mut bool),
    /// The first of the initiator's list that is one of these.
    List(&'static [&'static str]),
    /// IFMarker and OFMarker, which are obsolete (13.25).
    Marker,
    /// IFMarkInt and OFMarkInt, which are obsolete (13.25).
    MarkerInterval,
    /// Handled by the caller: AuthMethod, SendTargets.
    Caller,
}

type Range = std::ops::RangeInclusive<u64>;

struct Key {
    name: &'static str,
    when: Use,
    /// Irrelevant when SessionType=Discovery.
    normal_only: bool,
    rule: Rule,
}

const SEGMENT: Range = 512..=(1 << 24) - 1;

/// The keys of 13, and AuthMethod (12.1).
#[rustfmt::skip]
const KEYS: &[Key] = &[
    key("HeaderDigest", Use::Operational, false, Rule::Digest(|p| &mut p.header_digest)),
    key("DataDigest", Use::Operational, false, Rule::Digest(|p| &mut p.data_digest)),
    key("MaxConnections", Use::Operational, true, Rule::Minimum(1..=65535, |_| 1, |_, _| {})),
    key("SendTargets", Use::FullFeature, false, Rule::Caller),
    key("TargetName", Use::Login, false, Rule::Declared),
    key("InitiatorName", Use::Login, false, Rule::Declared),
    key("TargetAlias", Use::Never, false, Rule::Declared),
    key("InitiatorAlias", Use::Always, false, Rule::Declared),
    key("TargetAddress", Use::Never, false, Rule::Declared),
    key("TargetPortalGroupTag", Use::Never, false, Rule::Declared),
    key("InitialR2T", Use::Operational, true, Rule::Or(|l| !l.unsolicited_data, |p, v| p.initial_r2t = v)),
    key("ImmediateData", Use::Operational, true, Rule::And(|l| l.immediate_data, |p, v| p.immediate_data = v)),
    key("MaxRecvDataSegmentLength", Use::OperationalOrFullFeature, false, Rule::DeclaredNumber(SEGMENT, |p| &mut p.max_send_segment)),
    key("MaxBurstLength", Use::Operational, true, Rule::Minimum(SEGMENT, |l| l.max_burst.into(), |p, v| p.max_burst = v as u32)),
    key("FirstBurstLength", Use::Operational, true, Rule::Minimum(SEGMENT, |l| l.first_burst.into(), |p, v| p.first_burst = v as u32)),
    key("DefaultTime2Wait", Use::Operational, false, Rule::Maximum(0..=3600, 2, |p, v| p.time2wait = v as u16)),
    key("DefaultTime2Retain", Use::Operational, false, Rule::Minimum(0..=3600, |_| 0, |p, v| p.time2retain = v as u16)),
    key("MaxOutstandingR2T", Use::Operational, true, Rule::Minimum(1..=65535, |l| l.max_outstanding_r2t.into(), |p, v| p.max_outstanding_r2t = v as u16)),
    key("DataPDUInOrder", Use::Operational, true, Rule::Or(|_| true, |_, _| {})),
    key("DataSequenceInOrder", Use::Operational, true, Rule::Or(|_| true, |_, _| {})),
    key("ErrorRecoveryLevel", Use::Operational, false, Rule::Minimum(0..=2, |_| 0, |_, _| {})),
    key("SessionType", Use::Login, false, Rule::Declared),
    key("AuthMethod", Use::Security, false, Rule::Caller),
    // One connection per session needs nothing special for response fences (4.2.2.3.3).
    key("TaskReporting", Use::Operational, true, Rule::List(&["RFC3720", "ResponseFence"])),
    key("iSCSIProtocolLevel", Use::Operational, true, Rule::Minimum(0..=31, |_| 1, |_, _| {})),
    key("IFMarker", Use::Operational, false, Rule::Marker),
    key("OFMarker", Use::Operational, false, Rule::Marker),
    key("IFMarkInt", Use::Operational, false, Rule::MarkerInterval),
    key("OFMarkInt", Use::Operational, false, Rule::MarkerInterval),
    key("X#NodeArchitecture", Use::Login, false, Rule::Declared),
];

const fn key(name: &'static str, when: Use, normal_only: bool, rule: Rule) -> Key {
    Key { name, when, normal_only, rule }
}

/// Keys that a negotiation has had. One bit for each of the table; unknown ones by name, up to a limit.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    known: u32,
    unknown: Vec<String>,
}

/// Unknown keys in one negotiation. More are a protocol error: nobody has that many.
const MAX_UNKNOWN: usize = 64;

impl Seen {
    /// Notes a key. False if it was there before, or there are too many: either is a protocol error (6.3, 6.4).
    pub(super) fn note(&mut self, name: &str) -> bool {
        match KEYS.iter().position(|k| k.name == name) {
            Some(at) => {
                let bit = 1 << at;
                let new = self.known & bit == 0;
                self.known |= bit;
                new
            }
            None => {
                let new = self.unknown.len() < MAX_UNKNOWN && !self.unknown.iter().any(|k| k == name);
                if new {
                    self.unknown.push(name.to_owned());
                }
                new
            }
        }
    }

    /// Whether a key of the table was there.
    pub(super) fn has(&self, name: &str) -> bool {
        KEYS.iter().position(|k| k.name == name).is_some_and(|at| self.known & 1 << at != 0)
    }
}

/// What came of one pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// Send this value back.
    Answer(String),
    /// Declared; nothing to send.
    Taken,
    /// The caller knows what to do with this key.
    Caller,
    /// Not at this time, or not by an initiator: a protocol error (6.3).
    Misplaced,
    /// A declared value that is not acceptable: a negotiation failure (7.12).
    Unacceptable,
}

/// Negotiates one pair. A value that is not admissible is answered Reject (6.2.2) and leaves the parameter as it is.
pub(super) fn negotiate(
    name: &str,
    value: &str,
    stage: Stage,
    kind: SessionKind,
    limits: &Limits,
    params: &mut Params,
) -> Outcome {
    let Some(key) = KEYS.iter().find(|k| k.name == name) else {
        return Outcome::Answer("NotUnderstood".to_owned());
    };
    if !key.when.allows(stage) {
        return Outcome::Misplaced;
    }
    if key.normal_only && kind == SessionKind::Discovery {
        return Outcome::Answer("Irrelevant".to_owned());
    }
    let answer = match &key.rule {
        Rule::Declared => return Outcome::Taken,
        Rule::Caller => return Outcome::Caller,
        Rule::DeclaredNumber(range, field) => match admissible(value, range) {
            Some(n) => {
                *field(params) = n as u32;
                return Outcome::Taken;
            }
            None => return Outcome::Unacceptable,
        },
        Rule::Minimum(range, ours, set) => admissible(value, range).map(|n| {
            let result = n.min(ours(limits));
            set(params, result);
            result.to_string()
        }),
        Rule::Maximum(range, ours, set) => admissible(value, range).map(|n| {
            let result = n.max(*ours);
            set(params, result);
            result.to_string()
        }),
        Rule::And(ours, set) => text::boolean(value).map(|yes| {
            let result = yes && ours(limits);
            set(params, result);
            yes_no(result)
        }),
        Rule::Or(ours, set) => text::boolean(value).map(|yes| {
            let result = yes || ours(limits);
            set(params, result);
            yes_no(result)
        }),
        Rule::Digest(field) => digest(value, kind).map(|yes| {
            *field(params) = yes;
            if yes { "CRC32C" } else { "None" }.to_owned()
        }),
        Rule::List(supported) => value.split(',').find(|v| supported.contains(v)).map(str::to_owned),
        Rule::Marker => (value == "No").then(|| "No".to_owned()),
        Rule::MarkerInterval => None,
    };
    Outcome::Answer(answer.unwrap_or_else(|| "Reject".to_owned()))
}

/// The first of the list that we know (6.2.1). A discovery session is too short to be worth a digest.
fn digest(list: &str, kind: SessionKind) -> Option<bool> {
    list.split(',').find_map(|v| match v {
        "CRC32C" if kind == SessionKind::Normal => Some(true),
        "None" => Some(false),
        _ => None,
    })
}

fn admissible(value: &str, range: &Range) -> Option<u64> {
    text::number(value).filter(|n| range.contains(n))
}

fn yes_no(value: bool) -> String {
    if value { "Yes" } else { "No" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(name: &str, value: &str) -> (Outcome, Params) {
        let mut params = Params::default();
        let limits = Limits { max_burst: 1 << 20, first_burst: 64 << 10, ..Limits::default() };
        let outcome = negotiate(name, value, Stage::Operational, SessionKind::Normal, &limits, &mut params);
        (outcome, params)
    }

    fn answered(name: &str, value: &str) -> String {
        match answer(name, value).0 {
            Outcome::Answer(text) => text,
            other => panic!("{name}={value}: {other:?}"),
        }
    }

    #[test]
    fn numbers_take_the_smaller_or_larger_value() {
        assert_eq!(answered("MaxBurstLength", "262144"), "262144");
        assert_eq!(answered("MaxBurstLength", "16776192"), "1048576");
        assert_eq!(answered("MaxBurstLength", "0x200"), "512");
        assert_eq!(answered("DefaultTime2Wait", "0"), "2");
        assert_eq!(answered("DefaultTime2Wait", "5"), "5");
        assert_eq!(answered("MaxConnections", "8"), "1");
        assert_eq!(answered("ErrorRecoveryLevel", "2"), "0");
        assert_eq!(answered("iSCSIProtocolLevel", "2"), "1");
    }

    #[test]
    fn l16_inadmissible_numbers_are_rejected_and_change_nothing() {
        for value in ["0", "511", "16777216", "-1", "1e6", "18446744073709551616", "", "Yes"] {
            let (outcome, params) = answer("MaxBurstLength", value);
            assert_eq!(outcome, Outcome::Answer("Reject".to_owned()), "{value}");
            assert_eq!(params, Params::default());
            assert_eq!(answer("MaxRecvDataSegmentLength", value).0, Outcome::Unacceptable, "{value}");
        }
    }

    #[test]
    fn booleans_follow_their_function() {
        assert_eq!(answered("InitialR2T", "No"), "No");
        assert_eq!(answered("InitialR2T", "Yes"), "Yes");
        assert_eq!(answered("ImmediateData", "Yes"), "Yes");
        assert_eq!(answered("ImmediateData", "No"), "No");
        assert_eq!(answered("DataPDUInOrder", "No"), "Yes");
        assert_eq!(answered("DataSequenceInOrder", "No"), "Yes");
        assert_eq!(answered("ImmediateData", "yes"), "Reject");
    }

    #[test]
    fn l18_lists_give_the_first_value_that_we_know() {
        assert_eq!(answered("HeaderDigest", "SHA1,CRC32C"), "CRC32C");
        assert_eq!(answered("HeaderDigest", "None,CRC32C"), "None");
        assert_eq!(answered("DataDigest", "SHA1"), "Reject");
        assert_eq!(answered("TaskReporting", "FastAbort,ResponseFence,RFC3720"), "ResponseFence");
        assert_eq!(answered("TaskReporting", "FastAbort"), "Reject");
    }

    #[test]
    fn obsolete_marker_keys_are_never_not_understood() {
        assert_eq!(answered("IFMarker", "No"), "No");
        assert_eq!(answered("OFMarker", "Yes"), "Reject");
        assert_eq!(answered("OFMarkInt", "2048~8192"), "Reject");
    }

    #[test]
    fn l15_unknown_keys_are_not_understood() {
        assert_eq!(answered("X-com.example.foo", "1"), "NotUnderstood");
        assert_eq!(answered("Foo", "1"), "NotUnderstood");
    }

    #[test]
    fn p9_a_discovery_session_has_no_digests_and_irrelevant_keys() {
        let mut params = Params::default();
        let limits = Limits::default();
        let mut ask =
            |name, value| negotiate(name, value, Stage::Operational, SessionKind::Discovery, &limits, &mut params);
        assert_eq!(ask("HeaderDigest", "CRC32C,None"), Outcome::Answer("None".to_owned()));
        assert_eq!(ask("HeaderDigest", "CRC32C"), Outcome::Answer("Reject".to_owned()));
        assert_eq!(ask("MaxBurstLength", "512"), Outcome::Answer("Irrelevant".to_owned()));
        assert_eq!(ask("MaxRecvDataSegmentLength", "65536"), Outcome::Taken);
        assert_eq!(params.max_send_segment, 65536);
    }

    #[test]
    fn keys_have_their_stage() {
        let limits = Limits::default();
        let place = |name, stage| {
            negotiate(name, "None", stage, SessionKind::Normal, &limits, &mut Params::default()) == Outcome::Misplaced
        };
        assert!(place("HeaderDigest", Stage::Security));
        assert!(place("AuthMethod", Stage::Operational));
        assert!(place("SendTargets", Stage::Operational));
        assert!(place("TargetAddress", Stage::Operational));
        assert!(place("MaxBurstLength", Stage::FullFeature));
        assert!(!place("InitiatorAlias", Stage::FullFeature));
        assert!(!place("InitiatorName", Stage::Security));
    }

    #[test]
    fn seen_keys_are_bounded() {
        let mut seen = Seen::default();
        assert!(KEYS.len() <= 32, "one bit each");
        assert!(seen.note("MaxBurstLength") && !seen.note("MaxBurstLength"));
        assert!((0..MAX_UNKNOWN).all(|n| seen.note(&format!("Key{n}"))));
        assert!(!seen.note("Another"));
    }
}
