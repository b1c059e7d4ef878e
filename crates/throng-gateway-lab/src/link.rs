//! Non-blocking sockets, and the rounds in which they are polled.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use throng_machine::clock;
use throng_wire::Time;

use crate::datagrams::Datagrams;
use crate::light::{Garbled, Message, Messages, Outgoing, frame};
use crate::load::Transport;

/// Most reads of one socket before the other sockets have their turn.
const READS_PER_TURN: usize = 8;
/// A buffer for all sockets of a thread: several of the largest frames.
pub(super) const SCRATCH_BYTES: usize = 1 << 19;
pub(super) const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// Time until the next attempt after a refused login.
pub(super) const RETRY: Duration = Duration::from_millis(50);

/// A connection.
pub(super) struct Reader {
    way: Way,
    pub(super) bytes: u64,
    pub(super) messages: u64,
    /// Frames or packets that could not be read.
    pub(super) garbled: u64,
}

enum Way {
    Stream {
        stream: TcpStream,
        /// The beginning of a frame whose end has not come.
        partial: Vec<u8>,
    },
    Datagrams(Box<Datagrams>),
}

impl Reader {
    /// Connects over TCP.
    pub(super) fn connect(address: SocketAddr) -> io::Result<Reader> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Reader::over(Way::Stream { stream, partial: Vec::new() }))
    }

    /// Connects as this client, in this manner.
    pub(super) fn connect_client(address: SocketAddr, transport: Transport, client: u32) -> io::Result<Reader> {
        match transport {
            Transport::Tcp => Reader::connect(address),
            Transport::Throng => {
                Datagrams::connect(address, client).map(|way| Reader::over(Way::Datagrams(Box::new(way))))
            }
        }
    }

    fn over(way: Way) -> Reader {
        Reader { way, bytes: 0, messages: 0, garbled: 0 }
    }

    /// Goes on with another connection after this one has broken; counters stay.
    pub(super) fn go_on_with(&mut self, other: Reader) {
        self.way = other.way;
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.way {
            Way::Stream { stream, .. } => stream.as_fd(),
            Way::Datagrams(datagrams) => datagrams.socket().as_fd(),
        }
    }

    /// Ends the connection.
    pub(super) fn close(&mut self) {
        match &mut self.way {
            // One that is broken already has ended.
            Way::Stream { stream, .. } => drop(stream.shutdown(Shutdown::Both)),
            Way::Datagrams(datagrams) => datagrams.close(),
        }
    }

    /// Reads what is there, and hands each message to `each`. `scratch` has [`SCRATCH_BYTES`].
    pub(super) fn read(&mut self, scratch: &mut [u8], mut each: impl FnMut(Message<'_>)) -> io::Result<()> {
        let Reader { way, bytes, messages, garbled } = self;
        let each = |message: Message<'_>| {
            *messages += 1;
            each(message);
        };
        let read = match way {
            Way::Stream { stream, partial } => read_stream((stream, partial), scratch, (bytes, garbled), each),
            Way::Datagrams(datagrams) => datagrams.read(bytes, each),
        };
        let is_garbled = read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidData);
        *garbled += u64::from(is_garbled);
        read
    }

    /// Sends as much of what waits as the kernel takes. The bytes that it took. To be called in each round.
    pub(super) fn send(&mut self, outgoing: &mut Outgoing) -> io::Result<u64> {
        let stream = match &mut self.way {
            Way::Stream { stream, .. } => stream,
            Way::Datagrams(datagrams) => return datagrams.send(outgoing),
        };
        let mut sent = 0;
        while !outgoing.is_empty() {
            match stream.write(outgoing.waiting()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(taken) => {
                    outgoing.advance(taken);
                    sent += taken as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }
}

/// Reads what a stream has, and counts its bytes, and the packets that could not be read to their end.
fn read_stream(
    (stream, partial): (&mut TcpStream, &mut Vec<u8>),
    scratch: &mut [u8],
    (bytes, garbled): (&mut u64, &mut u64),
    mut each: impl FnMut(Message<'_>),
) -> io::Result<()> {
    for _ in 0..READS_PER_TURN {
        let kept = partial.len();
        scratch[..kept].copy_from_slice(partial);
        let read = match stream.read(&mut scratch[kept..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        *bytes += read as u64;
        let filled = kept + read;
        let used = take_frames(&scratch[..filled], garbled, &mut each)?;
        partial.clear();
        partial.extend_from_slice(&scratch[used..filled]);
        if filled < scratch.len() {
            return Ok(());
        }
    }
    Ok(())
}

/// The bytes of the whole frames in front.
fn take_frames(bytes: &[u8], garbled: &mut u64, each: &mut impl FnMut(Message<'_>)) -> io::Result<usize> {
    let mut used = 0;
    loop {
        match frame(&bytes[used..]) {
            Ok(Some((payload, whole))) => {
                let mut messages = Messages(payload);
                messages.by_ref().for_each(&mut *each);
                *garbled += u64::from(!messages.0.is_empty());
                used += whole;
            }
            Ok(None) => return Ok(used),
            Err(Garbled) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Finds the sockets with data, and the time of the next round.
pub(super) struct Rounds {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    interval: Duration,
    next: Time,
}

impl Rounds {
    /// `interval` is the pause between two looks: waking up for each message would cost more than the message.
    pub(super) fn new(interval: Duration) -> io::Result<Rounds> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Rounds { epoll, events: Vec::with_capacity(1 << 12), interval, next: clock::now() })
    }

    pub(super) fn watch(&self, reader: &Reader, index: usize) -> io::Result<()> {
        let data = epoll::EventData::new_u64(index as u64);
        Ok(epoll::add(&self.epoll, reader.fd(), data, epoll::EventFlags::IN)?)
    }

    pub(super) fn forget(&self, reader: &Reader) {
        // A socket that is closed is forgotten by the kernel too.
        let _ = epoll::delete(&self.epoll, reader.fd());
    }

    /// Sleeps until the next round, and appends the indices of the sockets that have something. How late it is.
    pub(super) fn wait(&mut self, ready: &mut Vec<usize>) -> io::Result<Duration> {
        let early = self.next.since(clock::now());
        if !early.is_zero() {
            std::thread::sleep(early);
        }
        let now = clock::now();
        let late = now.since(self.next);
        self.next = now.after(self.interval);
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&Timespec::default())) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        ready.extend(self.events.iter().map(|event| event.data.u64() as usize));
        Ok(late)
    }
}
