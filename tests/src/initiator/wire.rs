//! PDUs on a TCP connection: framing, padding, digests. Writes are collected and leave in one vectored call; one read takes
//! whatever has come, and PDUs are parsed where they lie.

use super::pdu::{HEADER, Header, padding};
use super::{Error, Result, require};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Payload shorter than this is copied next to its header instead of being an element of its own.
const COPY_BELOW: usize = 16 << 10;
/// Elements of one vectored write.
const MAX_PIECES: usize = 64;
/// Room for reading beyond the longest PDU.
const READ_AHEAD: usize = 256 << 10;

/// One connection. Until [`set_digests`](Self::set_digests) nothing is digested, as in login.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    timeout: Duration,
    header_digest: bool,
    data_digest: bool,
    /// MaxRecvDataSegmentLength that we declared: longer segments are a violation.
    max_segment: usize,
    input: Vec<u8>,
    parsed: usize,
    filled: usize,
    output: VecDeque<Piece>,
    /// Bytes of the first piece that have left.
    sent: usize,
}

#[derive(Debug)]
enum Piece {
    Copied(Vec<u8>),
    Shared(Arc<[u8]>, Range<usize>),
}

/// A received PDU with its data copied, for callers that are not in a hurry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawPdu {
    /// The basic header segment.
    pub header: Header,
    /// The data segment without padding.
    pub data: Vec<u8>,
}

impl Wire {
    /// Connects. `timeout` is the longest wait for anything; after it a call returns [`Error::TimedOut`].
    pub fn connect(address: SocketAddr, timeout: Duration) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        Ok(Self {
            stream,
            timeout,
            header_digest: false,
            data_digest: false,
            max_segment: 8192,
            input: vec![0; READ_AHEAD],
            parsed: 0,
            filled: 0,
            output: VecDeque::new(),
            sent: 0,
        })
    }

    /// From now on, both ways.
    pub fn set_digests(&mut self, header: bool, data: bool) {
        self.header_digest = header;
        self.data_digest = data;
    }

    /// The longest data segment that the target may send from now on.
    pub fn set_max_segment(&mut self, bytes: usize) {
        self.max_segment = bytes;
        self.input.resize(self.filled.max(bytes + READ_AHEAD), 0);
    }

    /// The socket, for what only tests of attacks do to it.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Our address, as the target logs it.
    pub fn local_address(&self) -> Result<SocketAddr> {
        Ok(self.stream.local_addr()?)
    }

    /// Queues a PDU; DataSegmentLength is set from `data`.
    pub fn queue(&mut self, header: Header, data: &[u8]) {
        self.queue_parts(header, data, None);
    }

    /// As [`queue`](Self::queue), with data that are shared instead of copied when they are long.
    pub fn queue_shared(&mut self, header: Header, data: &Arc<[u8]>, range: Range<usize>) {
        if range.len() < COPY_BELOW {
            self.queue_parts(header, &data[range], None);
        } else {
            self.queue_parts(header, &data[range.clone()], Some((data, range)));
        }
    }

    /// Queues bytes as they are: no length, padding or digest is added.
    pub fn queue_bytes(&mut self, bytes: &[u8]) {
        self.copied().extend_from_slice(bytes);
    }

    /// Whether something waits to be written.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Writes what the socket takes without waiting.
    pub fn flush_some(&mut self) -> Result<()> {
        while !self.output.is_empty() {
            let mut pieces = Vec::with_capacity(self.output.len().min(MAX_PIECES));
            for (index, piece) in self.output.iter().take(MAX_PIECES).enumerate() {
                let skip = if index == 0 { self.sent } else { 0 };
                pieces.push(IoSlice::new(&piece.bytes()[skip..]));
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let mut no_control = SendAncillaryBuffer::default();
            let mut n = match rustix::net::sendmsg(&self.stream, &pieces, &mut no_control, flags) {
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                n => n?,
            };
            while let Some(first) = self.output.front() {
                let left = first.bytes().len() - self.sent;
                if n < left {
                    self.sent += n;
                    break;
                }
                n -= left;
                self.sent = 0;
                self.output.pop_front();
            }
        }
        Ok(())
    }

    /// Writes everything. A target that does not read while it has nothing to say is waited for; what it says meanwhile is
    /// taken in, so that the two never wait for each other.
    pub fn flush(&mut self) -> Result<()> {
        self.flush_some()?;
        while self.has_output() {
            self.wait()?;
        }
        Ok(())
    }

    /// Sends one PDU at once.
    pub fn send(&mut self, header: Header, data: &[u8]) -> Result<()> {
        self.queue(header, data);
        self.flush()
    }

    /// The next PDU, waiting for it. What is queued is written meanwhile. The data are at the returned range of
    /// [`bytes`](Self::bytes) until the next call.
    pub fn next_pdu(&mut self) -> Result<(Header, Range<usize>)> {
        loop {
            if let Some(pdu) = self.parse()? {
                return Ok(pdu);
            }
            self.flush_some()?;
            self.wait()?;
        }
    }

    /// A PDU that has already been read, without waiting.
    pub fn parse(&mut self) -> Result<Option<(Header, Range<usize>)>> {
        let Some(header) = self.input[self.parsed..self.filled].first_chunk::<HEADER>() else { return Ok(None) };
        let header = Header(*header);
        let (ahs, data) = (header.ahs_len(), header.data_len());
        require(data <= self.max_segment, || {
            format!("DataSegmentLength {data} exceeds our MaxRecvDataSegmentLength {} (13.12)", self.max_segment)
        })?;
        let digest = |on: bool| if on { 4 } else { 0 };
        let data_at = HEADER + ahs + digest(self.header_digest);
        let pad = padding(data);
        let total = data_at + data + pad + digest(self.data_digest && data > 0);
        if self.filled - self.parsed < total {
            return Ok(None);
        }
        let pdu = &self.input[self.parsed..self.parsed + total];
        if self.header_digest {
            let (covered, digest) = pdu[..data_at].split_at(HEADER + ahs);
            require(crc(covered) == digest, || format!("HeaderDigest of opcode {:02x}h (13.1)", header.opcode()))?;
        }
        if self.data_digest && data > 0 {
            let (covered, digest) = pdu[data_at..].split_at(data + pad);
            require(crc(covered) == digest, || format!("DataDigest of opcode {:02x}h (13.1)", header.opcode()))?;
        }
        // "SHOULD be 0" (11.1): anything else is memory of somebody else.
        let padded = &pdu[data_at + data..data_at + data + pad];
        require(padded.iter().all(|b| *b == 0), || format!("padding {padded:02x?} is not zero (11.1)"))?;
        let start = self.parsed + data_at;
        self.parsed += total;
        Ok(Some((header, start..start + data)))
    }

    /// The data of the PDU that was returned last.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.input[range]
    }

    /// The next PDU with its data copied.
    pub fn recv(&mut self) -> Result<RawPdu> {
        let (header, range) = self.next_pdu()?;
        Ok(RawPdu { header, data: self.bytes(range).to_vec() })
    }

    /// Sleeps until something can be read (and reads it) or, if output waits, until some of it is written.
    fn wait(&mut self) -> Result<()> {
        if self.has_output() {
            let mut fds = [PollFd::new(&self.stream, PollFlags::IN | PollFlags::OUT)];
            let timeout = Timespec { tv_sec: self.timeout.as_secs() as i64, tv_nsec: 0 };
            if poll(&mut fds, Some(&timeout))? == 0 {
                return Err(Error::TimedOut);
            }
            let ready = fds[0].revents();
            if ready.contains(PollFlags::OUT) {
                self.flush_some()?;
            }
            if !ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                return Ok(());
            }
        }
        self.read()
    }

    fn read(&mut self) -> Result<()> {
        if self.parsed == self.filled {
            (self.parsed, self.filled) = (0, 0);
        } else if self.input.len() - self.filled < READ_AHEAD && self.parsed > 0 {
            self.input.copy_within(self.parsed..self.filled, 0);
            self.filled -= self.parsed;
            self.parsed = 0;
        }
        if self.filled == self.input.len() {
            // Only while flushing: nobody parses. The answers are small against what is being written.
            self.input.resize(self.filled + READ_AHEAD, 0);
        }
        let (n, _) = rustix::net::recv(&self.stream, &mut self.input[self.filled..], RecvFlags::empty())?;
        if n == 0 {
            return Err(Error::Closed);
        }
        self.filled += n;
        Ok(())
    }

    fn queue_parts(&mut self, mut header: Header, data: &[u8], shared: Option<(&Arc<[u8]>, Range<usize>)>) {
        header.set_data_len(data.len());
        let (header_digest, data_digest) = (self.header_digest, self.data_digest && !data.is_empty());
        let copied = self.copied();
        copied.extend_from_slice(&header.0);
        if header_digest {
            copied.extend_from_slice(&crc(&header.0));
        }
        match shared {
            None => copied.extend_from_slice(data),
            Some((bytes, range)) => self.output.push_back(Piece::Shared(bytes.clone(), range)),
        }
        let pad = &[0; 3][..padding(data.len())];
        if pad.is_empty() && !data_digest {
            return;
        }
        let copied = self.copied();
        copied.extend_from_slice(pad);
        if data_digest {
            copied.extend_from_slice(&crc32c::crc32c_append(crc32c::crc32c(data), pad).to_le_bytes());
        }
    }

    /// The end of the output, to append to.
    fn copied(&mut self) -> &mut Vec<u8> {
        if !matches!(self.output.back(), Some(Piece::Copied(_))) {
            self.output.push_back(Piece::Copied(Vec::with_capacity(4096)));
        }
        match self.output.back_mut() {
            Some(Piece::Copied(bytes)) => bytes,
            _ => unreachable!("just pushed"),
        }
    }
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Shared(bytes, range) => &bytes[range.clone()],
        }
    }
}

/// CRC32C as it stands on the wire (13.1): the x^31 coefficient first, which is little-endian for the reflected form.
fn crc(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 3720 B.4.
    #[test]
    fn digests_of_the_standards_examples() {
        let up: Vec<u8> = (0..32).collect();
        let down: Vec<u8> = (0..32).rev().collect();
        assert_eq!(crc(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(crc(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
        assert_eq!(crc(&up), [0x4e, 0x79, 0xdd, 0x46]);
        assert_eq!(crc(&down), [0x5c, 0xdb, 0x3f, 0x11]);
    }
}
