//! The end of a command on the wire: its data in a C2HData, and its CapsuleResp unless the C2HData says it all.

use super::connection::{Incoming, Phase};
use super::node::{Cx, Node};
use crate::nvme::{QueueId, ReplyData};

impl Node {
    /// The target has answered a command.
    pub(super) fn reply(
        &mut self,
        cx: &mut Cx<'_>,
        queue: QueueId,
        cqe: [u8; 16],
        data: Option<ReplyData>,
        plain_success: bool,
    ) {
        let key = self.queues.get(&queue).copied();
        let Some((key, conn)) = key.and_then(|k| self.conns.get_mut(k).map(|c| (k, c))) else {
            // Ended by us before the target knew.
            return data.into_iter().for_each(|d| cx.pool.free(d.buf));
        };
        let cid = u16::from_le_bytes([cqe[12], cqe[13]]);
        let is_success = u16::from_le_bytes([cqe[14], cqe[15]]) >> 1 == 0;
        if let Some(data) = data {
            conn.tx.push_data(cid, data, plain_success, cx.pool);
        }
        if data.is_none() || !plain_success {
            conn.tx.push_response(cqe);
        }
        // The first command that succeeds is Connect.
        conn.is_connected |= is_success;
        if matches!(conn.phase, Phase::Elsewhere { .. }) {
            conn.phase = Phase::Commands { queue };
        }
        // If this was the command in the capsule, its data are for nobody.
        if matches!(conn.incoming, Incoming::Undecided { cid: c } if c == cid) {
            conn.incoming = Incoming::Ignore;
        }
        self.announce(key);
    }
}
