//! The login phase (6.3): what a Login Request may say, and what it is answered.
//!
//! ```text
//!  request --> C=1? --yes--> answer empty, wait for more text
//!                |
//!                no --> declare: names and session type --> [node: which target? may this initiator?]
//!                          --> answer: negotiate every other key --> respond, in pieces if it is long
//!                                 --> T=1 in both, NSG = full feature phase? --yes--> [node: place the session]
//! ```
//!
//! A stage is left only where the table of 6.3 allows:
//!
//! | from        | to security | to operational | to full feature |
//! |-------------|-------------|----------------|-----------------|
//! | start       | yes         | yes            | no              |
//! | security    | no          | yes            | yes             |
//! | operational | no          | no             | yes             |

use std::fmt;

use super::config::Limits;
use super::deframe::LOGIN_DATA_SEGMENT;
use super::negotiate::{Outcome, Params, Seen, Stage, negotiate};
use super::node::SessionKind;
use super::pdu::{LoginRequest, flag};
use super::text;

/// Requests in one login. More are refused; at least 6 are required (6.2).
const MAX_EXCHANGES: u32 = 32;

/// Longest iSCSI name in bytes (4.2.7.1).
const MAX_NAME: usize = 223;

/// Status-Class and Status-Detail of a Login Response (11.13.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LoginStatus(pub(super) u16);

impl LoginStatus {
    pub(super) const SUCCESS: Self = Self(0x0000);
    pub(super) const INITIATOR_ERROR: Self = Self(0x0200);
    pub(super) const AUTHENTICATION_FAILURE: Self = Self(0x0201);
    pub(super) const NOT_FOUND: Self = Self(0x0203);
    pub(super) const UNSUPPORTED_VERSION: Self = Self(0x0205);
    pub(super) const TOO_MANY_CONNECTIONS: Self = Self(0x0206);
    pub(super) const MISSING_PARAMETER: Self = Self(0x0207);
    pub(super) const SESSION_TYPE: Self = Self(0x0209);
    pub(super) const NO_SESSION: Self = Self(0x020a);
    pub(super) const INVALID_DURING_LOGIN: Self = Self(0x020b);
    pub(super) const SERVICE_UNAVAILABLE: Self = Self(0x0301);
    pub(super) const OUT_OF_RESOURCES: Self = Self(0x0302);
}

/// Why a login fails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    /// For the initiator.
    pub(super) status: LoginStatus,
    /// For the log.
    pub(super) why: String,
    /// Text of the response.
    pub(super) text: Vec<u8>,
}

impl Refusal {
    pub(super) fn new(status: LoginStatus, why: impl fmt::Display) -> Self {
        Self { status, why: why.to_string(), text: Vec::new() }
    }

    fn initiator_error(why: impl fmt::Display) -> Self {
        Self::new(LoginStatus::INITIATOR_ERROR, why)
    }
}

/// What every request of one login has to repeat (11.12.4 to 11.12.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LoginIdentity {
    pub(super) isid: [u8; 6],
    pub(super) tsih: u16,
    pub(super) cid: u16,
    pub(super) itt: u32,
    version_min: u8,
    version_max: u8,
}

/// One login in progress.
#[derive(Debug)]
pub(super) struct Login {
    /// From the first request on.
    identity: Option<LoginIdentity>,
    /// CmdSN of the last request: the first one of a new session (11.12.8).
    cmd_sn: u32,
    stage: Stage,
    exchanges: u32,
    /// The stage that the current request wants to go to.
    transit: Option<Stage>,
    continues: bool,
    /// Text received: a logical text data segment, complete when C is 0.
    text: Vec<u8>,
    /// Text that is still to be sent.
    reply: Vec<u8>,
    /// Keys of this stage: each stage is a negotiation of its own (6.2).
    seen: Seen,
    names: Names,
    /// The target portal group tag was told.
    greeted: bool,
    /// Our MaxRecvDataSegmentLength was declared.
    declared_segment: bool,
    security: Security,
    params: Params,
}

/// Who wants what. Complete after the first logical text data segment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Names {
    pub(super) initiator: Option<String>,
    pub(super) initiator_alias: Option<String>,
    pub(super) target: Option<String>,
    pub(super) kind: Option<SessionKind>,
}

/// What to do after a request.
#[derive(Debug)]
pub(super) enum Next {
    /// Send this.
    Respond(Answer),
    /// The text is complete: [`Login::declare`], then [`Login::answer`].
    Text,
}

/// A Login Response with status 0000h.
#[derive(Debug)]
pub(super) struct Answer {
    /// Byte 1 (11.13).
    pub(super) flags: u8,
    pub(super) text: Vec<u8>,
    /// It is the final response: full feature phase begins.
    pub(super) last: bool,
}

/// What the security stage has to reach (12.1). An exchange of CHAP is a state to be added here: it takes the pairs that
/// [`Security::take`] gets and lets [`Security::satisfied`] become true.
#[derive(Debug)]
struct Security {
    required: bool,
}

impl Security {
    /// `AuthMethod=<list>`: gives the first method that is acceptable.
    fn offer(&self, list: &str) -> Result<&'static str, Refusal> {
        if !self.required && list.split(',').any(|m| m == "None") {
            return Ok("None");
        }
        let mut refusal = Refusal::new(LoginStatus::AUTHENTICATION_FAILURE, format_args!("AuthMethod={list}"));
        text::push(&mut refusal.text, "AuthMethod", "Reject");
        Err(refusal)
    }

    /// Whether the stage may be left, or skipped.
    const fn satisfied(&self) -> bool {
        !self.required
    }
}

impl Login {
    /// A login that has not begun.
    pub(super) fn new() -> Self {
        Self {
            identity: None,
            cmd_sn: 0,
            stage: Stage::Security,
            exchanges: 0,
            transit: None,
            continues: false,
            text: Vec::new(),
            reply: Vec::new(),
            seen: Seen::default(),
            names: Names::default(),
            greeted: false,
            declared_segment: false,
            security: Security { required: false },
            params: Params::default(),
        }
    }

    /// The header of a request, before its text.
    pub(super) fn request(&mut self, request: &LoginRequest, data_len: usize) -> Result<(), Refusal> {
        self.exchanges += 1;
        if self.exchanges > MAX_EXCHANGES {
            return Err(Refusal::initiator_error(format_args!("more than {MAX_EXCHANGES} login requests")));
        }
        let identity = LoginIdentity {
            isid: request.isid,
            tsih: request.tsih.get(),
            cid: request.cid.get(),
            itt: request.itt.get(),
            version_min: request.version_min,
            version_max: request.version_max,
        };
        let stage = Stage::from_code(request.flags >> 2 & 3);
        match self.identity {
            None => {
                if identity.version_min > 0 {
                    let why = format_args!("Version-min {}", identity.version_min);
                    return Err(Refusal::new(LoginStatus::UNSUPPORTED_VERSION, why));
                }
                self.begin(stage)?;
                self.identity = Some(identity);
            }
            Some(first) if first != identity => {
                return Err(Refusal::initiator_error("ISID, TSIH, CID, ITT or version changed during the login"));
            }
            Some(_) => {}
        }
        if stage != Some(self.stage) {
            return Err(Refusal::initiator_error(format_args!("CSG {} in {:?}", request.flags >> 2 & 3, self.stage)));
        }
        self.cmd_sn = request.cmd_sn.get();
        self.continues = request.flags & flag::CONTINUE != 0;
        self.transit = self.transit_of(request.flags)?;
        if self.text.len() + data_len > text::MAX_TEXT {
            return Err(Refusal::initiator_error(format_args!("more than {} bytes of text", text::MAX_TEXT)));
        }
        Ok(())
    }

    /// The text of the request, in pieces.
    pub(super) fn text(&mut self, piece: &[u8]) {
        self.text.extend_from_slice(piece);
    }

    /// The request is complete.
    pub(super) fn next(&mut self) -> Result<Next, Refusal> {
        if !self.reply.is_empty() {
            // The initiator asks for the rest of our text, and has to do so without text of its own (6.2).
            return if self.text.is_empty() && !self.continues {
                Ok(Next::Respond(self.respond()))
            } else {
                Err(Refusal::initiator_error("text instead of an empty request for the rest of ours"))
            };
        }
        if self.continues {
            return Ok(Next::Respond(Answer { flags: self.stage.code() << 2, text: Vec::new(), last: false }));
        }
        Ok(Next::Text)
    }

    /// Takes up what the initiator declares about itself.
    pub(super) fn declare(&mut self) -> Result<&Names, Refusal> {
        let received = std::mem::take(&mut self.text);
        let pairs = text::parse(&received).map_err(Refusal::initiator_error)?;
        for &(key, value) in &pairs {
            if !self.seen.note(key) {
                return Err(Refusal::initiator_error(format_args!("{key} is negotiated twice, or too many keys")));
            }
            if matches!(value, "Reject" | "Irrelevant" | "NotUnderstood") {
                return Err(Refusal::initiator_error(format_args!("{key}={value} is not a proposal")));
            }
            self.declare_pair(key, value)?;
        }
        // Every connection names its initiator, and every normal session its target, in the first request (6.3).
        if self.names.initiator.is_none() {
            return Err(Refusal::new(LoginStatus::MISSING_PARAMETER, "no InitiatorName"));
        }
        let kind = *self.names.kind.get_or_insert(SessionKind::Normal);
        if kind == SessionKind::Normal && self.names.target.is_none() {
            return Err(Refusal::new(LoginStatus::MISSING_PARAMETER, "no TargetName"));
        }
        self.text = received;
        Ok(&self.names)
    }

    /// Negotiates the text that [`declare`](Self::declare) has seen. `tag` and `alias` are those of the portal and target.
    pub(super) fn answer(&mut self, limits: &Limits, tag: u16, alias: Option<&str>) -> Result<Answer, Refusal> {
        let kind = self.kind();
        if !self.greeted {
            self.greeted = true;
            text::push(&mut self.reply, "TargetPortalGroupTag", tag);
            if let Some(alias) = alias.filter(|_| kind == SessionKind::Normal) {
                text::push(&mut self.reply, "TargetAlias", alias);
            }
        }
        let received = std::mem::take(&mut self.text);
        let pairs = text::parse(&received).map_err(Refusal::initiator_error)?;
        // FirstBurstLength must not exceed MaxBurstLength (13.14), whichever comes first.
        if let Some((key, value)) = pairs.iter().find(|(key, _)| *key == "MaxBurstLength") {
            negotiate(key, value, self.stage, kind, limits, &mut self.params);
        }
        let limits = Limits { first_burst: limits.first_burst.min(self.params.max_burst), ..limits.clone() };
        for (key, value) in pairs {
            match negotiate(key, value, self.stage, kind, &limits, &mut self.params) {
                Outcome::Taken => {}
                Outcome::Answer(answer) => text::push(&mut self.reply, key, answer),
                Outcome::Caller => text::push(&mut self.reply, key, self.security.offer(value)?),
                Outcome::Misplaced => {
                    return Err(Refusal::initiator_error(format_args!("{key} in {:?}", self.stage)));
                }
                Outcome::Unacceptable => return Err(Refusal::initiator_error(format_args!("{key}={value}"))),
            }
        }
        if self.stage == Stage::Operational && !self.declared_segment {
            self.declared_segment = true;
            text::push(&mut self.reply, "MaxRecvDataSegmentLength", limits.max_recv_data_segment);
        }
        if self.params.first_burst > self.params.max_burst && self.seen.has("FirstBurstLength") {
            return Err(Refusal::initiator_error(format_args!(
                "FirstBurstLength {} is more than MaxBurstLength {}",
                self.params.first_burst, self.params.max_burst
            )));
        }
        if self.transit.is_some() && !self.security.satisfied() {
            return Err(Refusal::new(LoginStatus::AUTHENTICATION_FAILURE, "the initiator did not authenticate"));
        }
        Ok(self.respond())
    }

    /// What the first request says about the connection.
    pub(super) const fn identity(&self) -> Option<LoginIdentity> {
        self.identity
    }

    /// CmdSN of the first command of a new session.
    pub(super) const fn cmd_sn(&self) -> u32 {
        self.cmd_sn
    }

    pub(super) const fn names(&self) -> &Names {
        &self.names
    }

    /// What for; `Normal` unless declared otherwise.
    pub(super) fn kind(&self) -> SessionKind {
        self.names.kind.unwrap_or(SessionKind::Normal)
    }

    /// What was negotiated.
    pub(super) const fn params(&self) -> &Params {
        &self.params
    }

    /// The longest data segment that the initiator may send from now on.
    pub(super) const fn receive_segment(&self, limits: &Limits) -> u32 {
        if self.declared_segment { limits.max_recv_data_segment } else { LOGIN_DATA_SEGMENT }
    }

    fn begin(&mut self, stage: Option<Stage>) -> Result<(), Refusal> {
        match stage {
            Some(Stage::Security) => {}
            Some(Stage::Operational) if self.security.satisfied() => self.stage = Stage::Operational,
            Some(Stage::Operational) => {
                return Err(Refusal::new(LoginStatus::AUTHENTICATION_FAILURE, "the security stage was skipped"));
            }
            Some(Stage::FullFeature) | None => {
                return Err(Refusal::initiator_error("the login starts in no login stage"));
            }
        }
        Ok(())
    }

    /// T and NSG (11.12.1, 11.12.3).
    fn transit_of(&self, flags: u8) -> Result<Option<Stage>, Refusal> {
        if flags & flag::FINAL == 0 {
            return Ok(None);
        }
        if self.continues {
            return Err(Refusal::initiator_error("T and C are both 1"));
        }
        match (self.stage, Stage::from_code(flags & 3)) {
            (Stage::Security, Some(next @ (Stage::Operational | Stage::FullFeature)))
            | (Stage::Operational, Some(next @ Stage::FullFeature)) => Ok(Some(next)),
            (from, _) => Err(Refusal::initiator_error(format_args!("NSG {} in {from:?}", flags & 3))),
        }
    }

    fn declare_pair(&mut self, key: &str, value: &str) -> Result<(), Refusal> {
        match key {
            "InitiatorName" => declare_name(&mut self.names.initiator, key, value),
            "TargetName" => declare_name(&mut self.names.target, key, value),
            "InitiatorAlias" => {
                self.names.initiator_alias = Some(value.to_owned());
                Ok(())
            }
            "SessionType" => {
                let kind = match value {
                    "Normal" => SessionKind::Normal,
                    "Discovery" => SessionKind::Discovery,
                    _ => return Err(Refusal::new(LoginStatus::INITIATOR_ERROR, format_args!("SessionType={value}"))),
                };
                if self.names.kind.is_some_and(|k| k != kind) {
                    return Err(Refusal::new(LoginStatus::SESSION_TYPE, "SessionType changed during the login"));
                }
                self.names.kind = Some(kind);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The next piece of our text, and with the last one the transition, if the request asks for it.
    fn respond(&mut self) -> Answer {
        let n = text::cut(&self.reply, LOGIN_DATA_SEGMENT as usize);
        let rest = self.reply.split_off(n);
        let text = std::mem::replace(&mut self.reply, rest);
        let stage = self.stage;
        if !self.reply.is_empty() {
            return Answer { flags: flag::CONTINUE | stage.code() << 2, text, last: false };
        }
        let Some(next) = self.transit else {
            return Answer { flags: stage.code() << 2, text, last: false };
        };
        self.stage = next;
        self.seen = Seen::default();
        Answer { flags: flag::FINAL | stage.code() << 2 | next.code(), text, last: next == Stage::FullFeature }
    }
}

/// A name may be repeated in a later stage, as some initiators do, but not changed (13.4, 13.5).
fn declare_name(slot: &mut Option<String>, key: &str, value: &str) -> Result<(), Refusal> {
    if !is_name(value) {
        return Err(Refusal::initiator_error(format_args!("{key}={value} is not an iSCSI name")));
    }
    match slot {
        Some(known) if known != value => Err(Refusal::initiator_error(format_args!("{key} changed during the login"))),
        Some(_) => Ok(()),
        None => {
            *slot = Some(value.to_owned());
            Ok(())
        }
    }
}

/// Whether this looks like an iSCSI name (4.2.7.1): type, then letters, digits, `-`, `.`, `:` (and `_`, which is seen).
fn is_name(value: &str) -> bool {
    let rest = ["iqn.", "eui.", "naa."].iter().find_map(|kind| value.strip_prefix(kind));
    value.len() <= MAX_NAME
        && rest.is_some_and(|r| !r.is_empty() && r.chars().all(|c| c.is_alphanumeric() || "-.:_".contains(c)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(flags: u8) -> LoginRequest {
        LoginRequest { flags, ..zerocopy::FromZeros::new_zeroed() }
    }

    fn required() -> Login {
        Login { security: Security { required: true }, ..Login::new() }
    }

    #[test]
    fn l10_the_security_stage_cannot_be_skipped_where_it_is_required() {
        let refusal = required().request(&request(0x87), 0).unwrap_err();
        assert_eq!(refusal.status, LoginStatus::AUTHENTICATION_FAILURE);
    }

    #[test]
    fn l11_nor_left_without_authentication() {
        for (flags, keys) in [(0x83, ""), (0x81, ""), (0x00, "AuthMethod=None\0"), (0x81, "AuthMethod=CHAP,None\0")] {
            let mut login = required();
            login.request(&request(flags), 0).unwrap();
            login.text(b"InitiatorName=iqn.a\0TargetName=iqn.b\0");
            login.text(keys.as_bytes());
            assert!(matches!(login.next(), Ok(Next::Text)));
            login.declare().unwrap();
            let refusal = login.answer(&Limits::default(), 1, None).unwrap_err();
            assert_eq!(refusal.status, LoginStatus::AUTHENTICATION_FAILURE, "{keys}");
        }
    }

    #[test]
    fn names_are_checked() {
        for name in ["iqn.2001-04.com.example:storage.disk2", "eui.02004567A425678D", "naa.52004567BA64678D", "iqn.a_b"]
        {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "iqn", "iqn.", "nqn.2014-08.org", "iqn.a/b", "iqn.a b", "iqn.a,b", "iqn.%n"] {
            assert!(!is_name(name), "{name}");
        }
    }
}
