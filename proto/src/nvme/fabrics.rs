//! Fabrics commands on a queue that is connected: properties on the admin queue, Disconnect on the others.

use platter_block::BufPool;

use super::queue::Role;
use super::status::Status;
use super::target::Target;
use super::task::{Direction, Next, Outcome};
use crate::slab::Key;

/// The opcode that all of them share.
pub(super) const OPCODE: u8 = 0x7f;

/// FCTYPE.
const PROPERTY_SET: u8 = 0x00;
pub(super) const CONNECT: u8 = 0x01;
const PROPERTY_GET: u8 = 0x04;
const DISCONNECT: u8 = 0x08;

impl Target {
    /// A fabrics command. Authentication is not asked for by the answer to Connect, and refused.
    pub(super) fn begin_fabrics(&mut self, key: Key, pool: &mut BufPool) -> Outcome {
        let task = self.tasks.get(key).expect("only commands in progress begin");
        let (sqe, queue) = (task.sqe, task.queue);
        let is_admin = self.queues.get(queue).is_some_and(|q| matches!(q.role, Role::Admin(_)));
        match sqe.fctype() {
            CONNECT => return Err(Status::SEQUENCE_ERROR.into()),
            PROPERTY_GET | PROPERTY_SET | DISCONNECT => task.expect_len(0, Direction::None)?,
            _ => return Err(Status::INVALID_OPCODE.into()),
        }
        match sqe.fctype() {
            PROPERTY_GET if is_admin => self.property_get(key, &sqe),
            PROPERTY_SET if is_admin => self.property_set(key, &sqe, pool),
            _ if is_admin => Err(Status::INVALID_QUEUE_TYPE.into()),
            PROPERTY_GET | PROPERTY_SET => Err(Status::INVALID_FIELD.into()),
            DISCONNECT if sqe.u16(40) != 0 => Err(Status::CONNECT_FORMAT.into()),
            _ => {
                self.cut(queue, Some(key), pool);
                self.forget_io_queue(queue);
                if let Some(queue) = self.queues.get_mut(queue) {
                    queue.last = Some(key);
                }
                Ok(Next::SUCCESS)
            }
        }
    }
}
