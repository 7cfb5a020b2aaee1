//! Sockets of a shard: reading as much as there is, writing all that is there in one call, and closing.

use super::{Message, Shard};
use platter_proto::iscsi::ConnId;
use std::cell::{Cell, RefCell};
use std::io::{self, IoSliceMut};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Bytes read at once when they do not go straight to a buffer.
pub(super) const SCRATCH: usize = 256 << 10;
/// Reads of one socket before what came in is worked on.
const READS_PER_TURN: usize = 4;
/// Turns in a row for one socket that always has more to read, before the other tasks get theirs.
const TURNS_IN_A_ROW: u32 = 2;
/// How long a connection that is being closed may take to read what is left for it.
const CLOSE_GRACE: Duration = Duration::from_secs(3);

/// One connection's socket.
pub(super) struct Socket {
    stream: TcpStream,
    /// Bytes that the node did not take yet.
    unread: RefCell<Vec<u8>>,
    /// A write would block: wait for writability.
    blocked: Cell<bool>,
    /// The node did not want bytes: look again after the next write.
    paused: Cell<bool>,
    fate: RefCell<Fate>,
    /// Something above changed.
    changed: Notify,
}

enum Fate {
    Open,
    /// Close once everything is written.
    Flushing,
    Closed,
    /// Goes to another shard.
    Moving {
        to: usize,
        detached: platter_proto::iscsi::Detached,
    },
}

/// What a read leaves.
enum Readable {
    /// The socket had no more.
    Emptied,
    /// Perhaps more, here or in the socket.
    More,
    /// The peer has closed it, or it failed.
    Closed,
}

impl Shard {
    /// Serves a connection until it ends.
    pub(super) fn start_socket(self: &Rc<Self>, conn: ConnId, stream: std::net::TcpStream, unread: Vec<u8>) {
        let stream = stream.set_nodelay(true).and_then(|()| TcpStream::from_std(stream));
        let stream = match stream {
            Ok(stream) => stream,
            Err(e) => {
                tracing::warn!("connection lost before it began: {e}");
                self.forget(conn);
                return;
            }
        };
        let socket = Rc::new(Socket {
            stream,
            unread: RefCell::new(unread),
            blocked: Cell::new(false),
            paused: Cell::new(false),
            fate: RefCell::new(Fate::Open),
            changed: Notify::new(),
        });
        self.sockets.borrow_mut().insert(conn, socket.clone());
        tokio::task::spawn_local(self.clone().serve_socket(conn, socket));
    }

    /// Writes what the node has for `conn`, as far as the socket takes it.
    pub(super) fn write(self: &Rc<Self>, conn: ConnId) {
        let Some(socket) = self.sockets.borrow().get(&conn).cloned() else { return };
        if socket.blocked.get() {
            return;
        }
        if let Err(e) = self.write_all(conn, &socket) {
            tracing::debug!("write failed, closing: {e}");
            *socket.fate.borrow_mut() = Fate::Closed;
            socket.changed.notify_one();
        } else if socket.paused.get() || socket.blocked.get() || matches!(*socket.fate.borrow(), Fate::Flushing) {
            socket.changed.notify_one();
        }
    }

    pub(super) fn close(self: &Rc<Self>, conn: ConnId, flush: bool) {
        let Some(socket) = self.sockets.borrow().get(&conn).cloned() else { return };
        *socket.fate.borrow_mut() = if flush { Fate::Flushing } else { Fate::Closed };
        socket.changed.notify_one();
    }

    /// Hands a connection over to the shard that serves `target`.
    pub(super) fn move_away(self: &Rc<Self>, conn: ConnId, target: &str) {
        let Some(socket) = self.sockets.borrow().get(&conn).cloned() else { return };
        let detached = self.core.borrow_mut().node.detach(conn);
        *socket.fate.borrow_mut() = match (detached, self.shard_of_target.get(target)) {
            (Some(detached), Some(&to)) => Fate::Moving { to, detached },
            _ => Fate::Closed,
        };
        socket.changed.notify_one();
    }

    async fn serve_socket(self: Rc<Self>, conn: ConnId, socket: Rc<Socket>) {
        let mut flush_deadline = None;
        let mut turns = 0;
        loop {
            // A socket that is always ready would never wait below, and keep everybody else waiting.
            if turns == TURNS_IN_A_ROW {
                turns = 0;
                tokio::task::yield_now().await;
            }
            let fate_is_flushing = match *socket.fate.borrow() {
                Fate::Open => false,
                Fate::Flushing => true,
                Fate::Closed | Fate::Moving { .. } => break,
            };
            if fate_is_flushing && !socket.blocked.get() {
                break;
            }
            let wants = !fate_is_flushing && self.core.borrow().node.wants_bytes(conn);
            socket.paused.set(!wants);
            if wants && !socket.unread.borrow().is_empty() {
                match self.read(conn, &socket) {
                    Readable::Closed => break,
                    Readable::Emptied | Readable::More => turns += 1,
                }
                continue;
            }
            let interest = match (wants, socket.blocked.get()) {
                (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
                (true, false) => Some(Interest::READABLE),
                (false, true) => Some(Interest::WRITABLE),
                (false, false) => None,
            };
            if fate_is_flushing && flush_deadline.is_none() {
                flush_deadline = Some(tokio::time::Instant::now() + CLOSE_GRACE);
            }
            let ready = tokio::select! {
                ready = socket.stream.ready(interest.unwrap_or(Interest::READABLE)), if interest.is_some() => ready,
                () = socket.changed.notified() => continue,
                () = reached(flush_deadline) => break,
            };
            let Ok(ready) = ready else { break };
            if ready.is_writable() && socket.blocked.replace(false) {
                if self.write_all(conn, &socket).is_err() {
                    break;
                }
                self.turn();
            }
            if ready.is_readable() && wants {
                match self.read(conn, &socket) {
                    Readable::Closed => break,
                    Readable::Emptied => turns = 0,
                    Readable::More => turns += 1,
                }
            }
        }
        self.end_socket(conn, socket).await;
    }

    /// Reads what has come and runs a turn.
    fn read(self: &Rc<Self>, conn: ConnId, socket: &Socket) -> Readable {
        let readable = self.read_some(conn, socket);
        self.turn();
        readable.unwrap_or_else(|e| {
            tracing::debug!("read failed, closing: {e}");
            Readable::Closed
        })
    }

    fn read_some(&self, conn: ConnId, socket: &Socket) -> io::Result<Readable> {
        let core = &mut *self.core.borrow_mut();
        let scratch = &mut *self.scratch.borrow_mut();
        let unread = &mut *socket.unread.borrow_mut();
        if !unread.is_empty() {
            let taken = core.node.received(core.clock.now(), conn, unread, &mut core.pool);
            unread.drain(..taken);
            return Ok(Readable::More);
        }
        for _ in 0..READS_PER_TURN {
            if !core.node.wants_bytes(conn) {
                break;
            }
            let space = core.node.payload_space(conn);
            let direct = space.as_ref().map_or(0, |(_, range)| range.len());
            let result = match space {
                Some((buf, range)) => {
                    let direct = &mut core.pool.bytes_mut(buf)[range];
                    socket.stream.try_read_vectored(&mut [IoSliceMut::new(direct), IoSliceMut::new(scratch)])
                }
                None => socket.stream.try_read(scratch),
            };
            let n = match result {
                Ok(0) => return Ok(Readable::Closed),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Readable::Emptied),
                Err(e) => return Err(e),
            };
            let now = core.clock.now();
            if direct > 0 {
                core.node.placed(now, conn, n.min(direct), &mut core.pool);
            }
            let rest = &scratch[..n.saturating_sub(direct)];
            if !rest.is_empty() {
                let taken = core.node.received(now, conn, rest, &mut core.pool);
                unread.extend_from_slice(&rest[taken..]);
            }
            if n < direct + scratch.len() && direct == 0 || !unread.is_empty() {
                break;
            }
        }
        Ok(Readable::More)
    }

    /// Writes until nothing is left or the socket takes no more; then `blocked` is set.
    fn write_all(&self, conn: ConnId, socket: &Socket) -> io::Result<()> {
        let core = &mut *self.core.borrow_mut();
        loop {
            let written = {
                let mut pieces = Vec::with_capacity(64);
                core.node.transmit(conn, &core.pool, &mut pieces);
                if pieces.is_empty() {
                    return Ok(());
                }
                socket.stream.try_write_vectored(&pieces)
            };
            match written {
                Ok(n) => core.node.transmitted(core.clock.now(), conn, n, &mut core.pool),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    socket.blocked.set(true);
                    return Ok(());
                }
                Err(e) => return Err(e),
            }
        }
    }

    async fn end_socket(self: &Rc<Self>, conn: ConnId, socket: Rc<Socket>) {
        self.sockets.borrow_mut().remove(&conn);
        let fate = std::mem::replace(&mut *socket.fate.borrow_mut(), Fate::Closed);
        let Fate::Moving { to, detached } = fate else {
            self.forget(conn);
            return;
        };
        // The map's reference was dropped above and no other is kept across an await, so this one is the last.
        let Some(socket) = Rc::into_inner(socket) else { return };
        match socket.stream.into_std() {
            Ok(stream) => {
                let message = Message::Adopt { stream, detached, unread: socket.unread.into_inner() };
                let _ = self.peers[to].send(message).await;
            }
            Err(e) => tracing::warn!("connection lost on its way to shard {to}: {e}"),
        }
    }

    /// Tells the node that a connection is gone.
    fn forget(self: &Rc<Self>, conn: ConnId) {
        {
            let core = &mut *self.core.borrow_mut();
            core.node.closed(core.clock.now(), conn, &mut core.pool);
        }
        self.turn();
    }
}

/// Waits for a deadline; for ever if there is none.
async fn reached(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
