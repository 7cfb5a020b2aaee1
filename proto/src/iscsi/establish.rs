//! How a login becomes a session: which target, which session it replaces or continues, and the final response (6.3.1).

use std::sync::Arc;

use platter_block::Instant;

use super::config::PortalInfo;
use super::connection::{Incoming, Phase, Sink, StatSn};
use super::event::EventKind;
use super::login::{Answer, Login, LoginStatus, Next, Refusal};
use super::node::{Cx, Node, Output, SessionKind};
use super::pdu::{LoginRequest, LoginResponse, opcode};
use super::sessions::{Ending, Session, SessionIdentity};
use super::transmit::Segment;
use super::window::CommandWindow;
use crate::front::ConnId;
use crate::scsi::NexusId;
use crate::slab::Key;

/// Where a login goes.
enum Destination {
    /// A target of this node.
    Here(usize),
    /// A target of another node.
    Elsewhere,
    /// A discovery session, which belongs to no target.
    Discovery,
}

impl Node {
    /// The header of the first PDUs of a connection.
    pub(super) fn login_header(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let Phase::Login(login) = &mut conn.phase else { return };
        let bhs = conn.rx.bhs();
        let op = bhs.op();
        if op != opcode::LOGIN {
            if op <= opcode::LOGOUT || op == opcode::SNACK {
                let why = format_args!("opcode {op:#04x} before the login");
                self.refuse_login(cx, key, Refusal::new(LoginStatus::INVALID_DURING_LOGIN, why));
            } else {
                self.drop_connection(cx, key, format_args!("first byte {:#04x} is no iSCSI request", bhs.opcode));
            }
            return;
        }
        if !conn.tx.is_empty() {
            self.drop_connection(cx, key, "a login request before the answer to the last one");
            return;
        }
        let request: LoginRequest = zerocopy::transmute!(bhs);
        match login.request(&request, bhs.data_len() as usize) {
            Ok(()) => {
                conn.sink = Sink::Login;
                conn.incoming = Incoming::Login;
            }
            Err(refusal) => self.refuse_login(cx, key, refusal),
        }
    }

    /// A Login Request is complete.
    pub(super) fn login_request(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(login) = self.login_of(key) else { return };
        match login.next() {
            Ok(Next::Respond(answer)) => self.login_answer(cx, key, answer),
            Ok(Next::Text) => match login.declare().map(|_| ()) {
                Ok(()) => self.login_text(cx, key),
                Err(refusal) => self.refuse_login(cx, key, refusal),
            },
            Err(refusal) => self.refuse_login(cx, key, refusal),
        }
    }

    /// The names are known: finds the target, then answers the rest.
    pub(super) fn login_text(&mut self, cx: &mut Cx<'_>, key: Key) {
        let destination = match self.destination(key) {
            Ok(destination) => destination,
            Err(refusal) => return self.refuse_login(cx, key, refusal),
        };
        let alias = match destination {
            Destination::Here(target) => self.targets[target].alias.clone(),
            Destination::Discovery => None,
            Destination::Elsewhere => return self.send_elsewhere(cx, key),
        };
        let Some(conn) = self.conns.get_mut(key) else { return };
        let Phase::Login(login) = &mut conn.phase else { return };
        match login.answer(&self.limits, conn.portal.tag, alias.as_deref()) {
            Ok(answer) => self.login_answer(cx, key, answer),
            Err(refusal) => self.refuse_login(cx, key, refusal),
        }
    }

    /// Ends a login with a status (7.12 a).
    pub(super) fn refuse_login(&mut self, cx: &mut Cx<'_>, key: Key, refusal: Refusal) {
        let Some(conn) = self.conns.get(key) else { return };
        let names = match &conn.phase {
            Phase::Login(login) | Phase::Elsewhere(login) | Phase::Waiting(login, _) => login.names().clone(),
            Phase::FullFeature { .. } | Phase::Closed => return,
        };
        let bhs = conn.rx.bhs();
        let mut response = response(refusal.status);
        if bhs.op() == opcode::LOGIN {
            let request: LoginRequest = zerocopy::transmute!(bhs);
            (response.isid, response.tsih, response.itt) = (request.isid, request.tsih, request.itt);
        }
        self.event(
            key,
            EventKind::LoginRefused {
                status: refusal.status.0,
                initiator: names.initiator,
                target: names.target,
                why: refusal.why,
            },
        );
        self.send(cx, key, zerocopy::transmute!(response), Segment::from(refusal.text), StatSn::Use);
        self.close_connection(cx, key, true);
    }

    /// Nothing of an old session is left: the login succeeds. `continued` is the session it takes over (6.3.4), `replaces`
    /// the peer of the session that was there before.
    pub(super) fn finish_login(
        &mut self,
        cx: &mut Cx<'_>,
        key: Key,
        continued: Option<Key>,
        replaces: Option<Arc<str>>,
    ) {
        let Some(conn) = self.conns.get(key) else { return };
        let Phase::Waiting(login, _) = &conn.phase else { return };
        if login.kind() == SessionKind::Normal && self.target_named(login.names().target.as_deref()).is_none() {
            let why = "the target was taken away";
            return self.refuse_login(cx, key, Refusal::new(LoginStatus::NOT_FOUND, why));
        }
        let Some(conn) = self.conns.get_mut(key) else { return };
        let Phase::Waiting(login, answer) = std::mem::replace(&mut conn.phase, Phase::Closed) else { return };
        let session = match continued {
            Some(session) => {
                self.continue_session(session, key, &login);
                session
            }
            None => self.new_session(cx.now, key, &login),
        };
        self.full_feature(cx, key, session, &login, answer, replaces);
    }

    fn login_of(&mut self, key: Key) -> Option<&mut Login> {
        match &mut self.conns.get_mut(key)?.phase {
            Phase::Login(login) => Some(login),
            _ => None,
        }
    }

    /// Which target the login names, and whether its initiator may know it.
    fn destination(&mut self, key: Key) -> Result<Destination, Refusal> {
        if self.drain_deadline.is_some() {
            return Err(Refusal::new(LoginStatus::SERVICE_UNAVAILABLE, "the target is stopping"));
        }
        let Some(conn) = self.conns.get(key) else { return Ok(Destination::Discovery) };
        let Phase::Login(login) = &conn.phase else { return Ok(Destination::Discovery) };
        let (kind, names) = (login.kind(), login.names().clone());
        let initiator = names.initiator.unwrap_or_default();
        let Some(name) = names.target else { return Ok(Destination::Discovery) };
        if self.directory.iter().any(|e| e.name == name && !e.is_behind(&conn.portal)) {
            return Err(Refusal::new(LoginStatus::NOT_FOUND, "the target is not offered through this portal"));
        }
        let listed = self.directory.iter().any(|e| e.name == name && e.initiators.allows(&initiator));
        match self.target_named(Some(&name)) {
            // A target that is not for this initiator is not there.
            Some(at) if !self.targets[at].initiators.allows(&initiator) => {
                Err(Refusal::new(LoginStatus::NOT_FOUND, "the initiator is not allowed to use this target"))
            }
            Some(at) if kind == SessionKind::Normal => Ok(Destination::Here(at)),
            Some(_) => Ok(Destination::Discovery),
            None if !listed => Err(Refusal::new(LoginStatus::NOT_FOUND, "no such target")),
            None if kind == SessionKind::Normal => Ok(Destination::Elsewhere),
            None => Ok(Destination::Discovery),
        }
    }

    fn send_elsewhere(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if conn.moved {
            return self.refuse_login(cx, key, Refusal::new(LoginStatus::NOT_FOUND, "no node has this target"));
        }
        match std::mem::replace(&mut conn.phase, Phase::Closed) {
            Phase::Login(login) => {
                let target = login.names().target.clone().unwrap_or_default();
                conn.phase = Phase::Elsewhere(login);
                self.outputs.push_back(Output::Elsewhere { conn: ConnId(key.to_bits()), name: target });
            }
            other => conn.phase = other,
        }
    }

    /// Sends an answer; with the last one the session begins.
    fn login_answer(&mut self, cx: &mut Cx<'_>, key: Key, answer: Answer) {
        if answer.last {
            return self.place_session(cx, key, answer);
        }
        let Some(identity) = self.login_of(key).and_then(|l| l.identity()) else { return };
        let header = LoginResponse {
            flags: answer.flags,
            isid: identity.isid,
            tsih: identity.tsih.into(),
            itt: identity.itt.into(),
            ..response(LoginStatus::SUCCESS)
        };
        self.send(cx, key, zerocopy::transmute!(header), Segment::from(answer.text), StatSn::Use);
    }

    /// The table of 6.3.1: new session, session reinstatement, connection reinstatement, or an error.
    fn place_session(&mut self, cx: &mut Cx<'_>, key: Key, answer: Answer) {
        let Some(conn) = self.conns.get(key) else { return };
        let Phase::Login(login) = &conn.phase else { return };
        let Some((wanted, login)) = session_identity(&conn.portal, login).zip(login.identity()) else { return };
        let existing =
            self.sessions.iter().find(|(_, s)| s.identity == wanted).map(|(k, s)| (k, s.tsih, s.cid, s.ending));
        let (session, ending) = match existing {
            Some((session, ..)) if login.tsih == 0 => (Some(session), Ending::Replaced { by: key }),
            None if login.tsih == 0 => {
                if self.sessions.len() >= self.limits.sessions {
                    let why = format_args!("{} sessions are there", self.limits.sessions);
                    return self.refuse_login(cx, key, Refusal::new(LoginStatus::OUT_OF_RESOURCES, why));
                }
                (None, Ending::Gone)
            }
            Some((session, tsih, cid, ending))
                if tsih == login.tsih && matches!(ending, None | Some(Ending::Continued { .. })) =>
            {
                if cid != login.cid {
                    let why = format_args!("CID {} is a second connection", login.cid);
                    return self.refuse_login(cx, key, Refusal::new(LoginStatus::TOO_MANY_CONNECTIONS, why));
                }
                (Some(session), Ending::Continued { by: key })
            }
            _ => {
                let why = format_args!("TSIH {} is no session of this initiator port", login.tsih);
                return self.refuse_login(cx, key, Refusal::new(LoginStatus::NO_SESSION, why));
            }
        };
        let Some(conn) = self.conns.get_mut(key) else { return };
        if let Phase::Login(login) = std::mem::replace(&mut conn.phase, Phase::Closed) {
            conn.phase = Phase::Waiting(login, answer);
        }
        match session {
            Some(session) => self.end_session(cx, session, ending),
            None => self.finish_login(cx, key, None, None),
        }
    }

    fn new_session(&mut self, now: Instant, key: Key, login: &Login) -> Key {
        let tsih = self.new_tsih();
        let conn = self.conns.get(key).expect("finish_login has found it");
        let identity = session_identity(&conn.portal, login).expect("the login has had a request");
        let target = match login.kind() {
            SessionKind::Normal => self.target_named(identity.target.as_deref()),
            SessionKind::Discovery => None,
        };
        self.last_nexus = self.last_nexus.wrapping_add(1);
        let session = Session {
            identity,
            kind: login.kind(),
            tsih,
            cid: login.identity().map_or(0, |i| i.cid),
            alias: login.names().initiator_alias.clone(),
            target,
            nexus: NexusId(self.last_nexus),
            params: login.params().clone(),
            window: CommandWindow::new(login.cmd_sn(), self.limits.command_window),
            conn: Some(key),
            peer: conn.peer.clone(),
            since: now,
            tasks: Vec::new(),
            immediate: 0,
            held: Vec::new(),
            gap_since: None,
            retired: Default::default(),
            next_transfer: 0,
            ending: None,
            aborted: 0,
            commands: 0,
            bytes_received: 0,
            bytes_sent: 0,
        };
        if let Some(target) = target {
            self.targets[target].device.nexus_established(session.nexus, &session.initiator_port());
        }
        self.sessions.insert(session)
    }

    /// Connection reinstatement: what is of the session stays, what is of the connection is new (6.3.4).
    fn continue_session(&mut self, session: Key, key: Key, login: &Login) {
        let conn = self.conns.get(key).expect("finish_login has found it");
        let session = self.sessions.get_mut(session).expect("check_drained has found it");
        session.ending = None;
        session.conn = Some(key);
        session.peer = conn.peer.clone();
        session.retired.clear();
        session.params.header_digest = login.params().header_digest;
        session.params.data_digest = login.params().data_digest;
        session.params.max_send_segment = login.params().max_send_segment;
    }

    fn full_feature(
        &mut self,
        cx: &mut Cx<'_>,
        key: Key,
        session: Key,
        login: &Login,
        answer: Answer,
        replaces: Option<Arc<str>>,
    ) {
        let receive = login.receive_segment(&self.limits);
        let s = self.sessions.get(session).expect("it was made just now");
        let (header_digest, data_digest) = (s.params.header_digest, s.params.data_digest);
        let header = LoginResponse {
            flags: answer.flags,
            isid: s.identity.isid,
            tsih: s.tsih.into(),
            itt: login.identity().map_or(0, |i| i.itt).into(),
            ..response(LoginStatus::SUCCESS)
        };
        let event = EventKind::LoggedIn {
            initiator: s.identity.initiator.clone(),
            target: s.identity.target.clone(),
            kind: s.kind,
            tsih: s.tsih,
            replaces: replaces.map(|peer| peer.to_string()),
        };
        if let Some(conn) = self.conns.get_mut(key) {
            conn.phase = Phase::FullFeature { session };
            conn.alive = cx.now;
        }
        // The response itself is still without digests: they begin with full feature phase (13.1).
        self.send(cx, key, zerocopy::transmute!(header), Segment::from(answer.text), StatSn::Use);
        if let Some(conn) = self.conns.get_mut(key) {
            conn.tx.configure(header_digest, data_digest);
            conn.rx.configure(header_digest, data_digest, receive);
        }
        self.event(key, event);
        self.schedule(cx.now + self.limits.nop_interval);
    }

    fn target_named(&self, name: Option<&str>) -> Option<usize> {
        self.targets.iter().position(|t| Some(t.name.as_str()) == name && !t.removed)
    }

    /// A TSIH that is neither 0 nor in use.
    fn new_tsih(&mut self) -> u16 {
        loop {
            self.last_tsih = self.last_tsih.wrapping_add(1);
            if self.last_tsih != 0 && self.sessions.iter().all(|(_, s)| s.tsih != self.last_tsih) {
                return self.last_tsih;
            }
        }
    }
}

fn session_identity(portal: &PortalInfo, login: &Login) -> Option<SessionIdentity> {
    let names = login.names();
    Some(SessionIdentity {
        initiator: names.initiator.clone()?,
        isid: login.identity()?.isid,
        tag: portal.tag,
        portal: names.target.is_none().then(|| portal.address.clone()),
        target: names.target.clone(),
    })
}

fn response(status: LoginStatus) -> LoginResponse {
    LoginResponse { opcode: opcode::LOGIN_RESPONSE, status: status.0.into(), ..zerocopy::FromZeros::new_zeroed() }
}
