//! One conversation: a protocol machine with the interface of a byte stream.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use kcp::Kcp;
use throng_gateway_engine::port::Side;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::door::Door;
use super::super::memory::{Holding, Memory, Part};
use super::super::udp::DatagramSocket;
use super::super::wake::WakeList;
use super::DATAGRAM_BYTES;
use super::received::Received;
use super::segment::{self, Sent, WINDOW_IN};

/// Segments that may be on their way to the peer, or wait for that. Beyond, the writer waits: what is in here counts as
/// written, and cannot be merged with anything newer. 88 KB, 880 KB/s over a round trip of 100 ms.
const WAITING_MAX: usize = 64;
/// Segments that a peer has room for before it reports its window: the smallest initial window of any KCP.
const PEER_WINDOW: u16 = 32;
/// Memory of a segment in the state machine, without its data.
const SEGMENT_BYTES: usize = 96;
/// How often the machine looks for what has to be sent again.
pub(super) const INTERVAL: Duration = Duration::from_millis(10);
/// A segment that was overtaken by this many acknowledgements is sent again at once.
const RESEND_AFTER: i32 = 2;

/// Sends what the machine writes. If the kernel has no room, a little data waits; the rest counts as lost in the
/// network and will be sent again.
struct Output {
    socket: Arc<DatagramSocket>,
    to: SocketAddr,
    /// Shared with the session, which holds its lock whenever the machine writes.
    sent: Arc<Mutex<Sent>>,
}

impl Write for Output {
    fn write(&mut self, datagram: &[u8]) -> io::Result<usize> {
        lock(&self.sent).note(datagram);
        self.socket.send_to(datagram, self.to);
        Ok(datagram.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One conversation.
pub(super) struct Session {
    pub(super) conversation: u32,
    pub(super) address: SocketAddr,
    began: Instant,
    /// Where the machine's clock begins. Nobody can guess it, so a peer that repeats the clock's value has received it.
    clock_ms: u32,
    pending: Arc<WakeList<SocketAddr>>,
    side: Side,
    /// Bytes that a peer may say before login.
    stranger_bytes: usize,
    memory: Arc<Memory>,
    state: Mutex<State>,
}

struct State {
    machine: Kcp<Output>,
    sent: Arc<Mutex<Sent>>,
    /// Segments that the peer has room for, as far as it has reported.
    window: u16,
    /// A message that did not fit into the reader's buffer.
    inbox: BytesMut,
    /// The segments that the machine holds for the reader.
    received: Received,
    /// Bytes that the reader has taken.
    read_bytes: usize,
    /// The memory of both.
    inbound: Holding,
    /// The memory of what the machine has not delivered.
    outbound: Holding,
    reader: Option<Waker>,
    writer: Option<Waker>,
    heard: Instant,
    /// It is among those that are looked after.
    is_pending: bool,
    /// Nothing will come any more.
    is_lost: bool,
    /// Neither reader nor writer is left.
    is_done: bool,
}

/// The needs of a session after it was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// To be looked after again, an interval later.
    Care,
    /// No care until the session asks for it.
    Rest,
    /// To be forgotten.
    End,
}

impl Session {
    pub(super) fn new(
        conversation: u32,
        address: SocketAddr,
        (socket, pending): (&Arc<DatagramSocket>, &Arc<WakeList<SocketAddr>>),
        door: &Door,
    ) -> Arc<Session> {
        let memory = door.memory();
        let sent = Arc::<Mutex<Sent>>::default();
        let output = Output { socket: Arc::clone(socket), to: address, sent: Arc::clone(&sent) };
        let mut machine = Kcp::new_stream(conversation, output);
        machine.set_nodelay(true, INTERVAL.as_millis() as i32, RESEND_AFTER, true);
        machine.set_wndsize(WAITING_MAX as u16, WINDOW_IN);
        let now = Instant::now();
        // Far from where the machine's clock would wrap around. Without chance, it is one that can be guessed.
        let mut random = [0; 4];
        let _ = getrandom::fill(&mut random);
        let clock_ms = u32::from_le_bytes(random) >> 1;
        // The first update starts the machine; there is nothing to send yet.
        let _ = machine.update(clock_ms);
        Arc::new(Session {
            conversation,
            address,
            began: now,
            clock_ms,
            pending: Arc::clone(pending),
            side: door.side,
            stranger_bytes: door.limits().stranger_bytes,
            memory: Arc::clone(memory),
            state: Mutex::new(State {
                machine,
                sent,
                window: PEER_WINDOW,
                inbox: BytesMut::new(),
                received: Received::default(),
                read_bytes: 0,
                inbound: Holding::new(memory, Part::Inbound, 0),
                outbound: Holding::new(memory, Part::Queues, 0),
                reader: None,
                writer: None,
                heard: now,
                is_pending: false,
                is_lost: false,
                is_done: false,
            }),
        })
    }

    /// Both ends of the stream.
    pub(super) fn ends(self: &Arc<Session>) -> (Reader, Writer) {
        let both = Arc::new(Both(Arc::clone(self)));
        (Reader(Arc::clone(&both)), Writer(both))
    }

    /// A datagram has come from the session's address. False if it is none that an honest peer could have sent.
    pub(super) fn handle(&self, datagram: &mut [u8]) -> bool {
        let now_ms = self.now_ms();
        let mut state = self.lock();
        if state.is_done {
            return true;
        }
        let sent = lock(&state.sent);
        let Some(sound) = segment::sound(datagram, (self.conversation, &sent), now_ms) else { return false };
        segment::tame(datagram, (sound, &sent), state.window);
        drop(sent);
        if sound.has_echo {
            state.window = sound.window;
        }
        state.heard = Instant::now();
        // To the peer it is lost on its way, and comes again.
        let most_bytes = self.most_bytes(&state);
        segment::leave_out(datagram, |segment| !state.received.has_room(segment, most_bytes));
        if state.machine.input(datagram).is_err() {
            return false;
        }
        state.received.note(datagram);
        state.count();
        // Acknowledgements go out at once, and what the window has room for now.
        state.flush(now_ms);
        state.wake();
        self.ask_for_care(&mut state);
        true
    }

    /// Bytes of data that a client may have here, in order and ahead of a gap each. The machine itself has room for 512 segments. The
    /// intake reads no more than a stranger may say before login, so who was read beyond that has logged in.
    fn most_bytes(&self, state: &State) -> usize {
        match self.side {
            Side::Server => usize::MAX,
            Side::Client if !self.memory.has_room(Side::Client) => 0,
            Side::Client if state.read_bytes <= self.stranger_bytes => self.stranger_bytes.max(DATAGRAM_BYTES),
            Side::Client => usize::MAX,
        }
    }

    /// Sends what has to be sent again. Called once in an [`INTERVAL`] as long as anything is on its way.
    pub(super) fn care(&self) -> Need {
        let mut state = self.lock();
        if state.is_lost {
            return Need::End;
        }
        let _ = state.machine.update(self.now_ms());
        state.count();
        if state.machine.is_dead_link() {
            state.lose();
            return Need::End;
        }
        state.wake();
        match state.machine.wait_snd() {
            // The writer has waited for the last acknowledgement as long as it may.
            _ if state.is_done => Need::End,
            0 => {
                state.is_pending = false;
                Need::Rest
            }
            _ => Need::Care,
        }
    }

    /// How long the peer has been silent.
    pub(super) fn silence(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.lock().heard)
    }

    /// Ends it without a word, which is all that the protocol has for it.
    pub(super) fn lose(&self) {
        self.lock().lose();
    }

    fn ask_for_care(&self, state: &mut State) {
        if !state.is_pending && (state.machine.wait_snd() > 0 || state.is_done) {
            state.is_pending = true;
            self.pending.add(self.address);
        }
    }

    /// The time of the machine's clock.
    fn now_ms(&self) -> u32 {
        self.clock_ms.wrapping_add(self.began.elapsed().as_millis() as u32)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn count(&mut self) {
        self.inbound.set_about(self.received.bytes() + self.inbox.capacity());
        self.outbound.set_about(self.machine.wait_snd() * (self.machine.mss() + SEGMENT_BYTES));
    }

    fn flush(&mut self, now_ms: u32) {
        let _ = self.machine.update(now_ms);
        let _ = self.machine.flush();
    }

    fn lose(&mut self) {
        self.is_lost = true;
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }

    fn wake(&mut self) {
        if self.machine.peeksize().is_ok()
            && let Some(reader) = self.reader.take()
        {
            reader.wake();
        }
        if self.machine.wait_snd() < WAITING_MAX
            && let Some(writer) = self.writer.take()
        {
            writer.wake();
        }
    }

    /// Takes the next message out of the machine. False if there is none.
    fn fetch(&mut self) -> bool {
        while let Ok(bytes) = self.machine.peeksize() {
            self.inbox.resize(bytes, 0);
            if self.machine.recv(&mut self.inbox).is_err() {
                self.inbox.clear();
                return false;
            }
            self.received.take_message();
            self.read_bytes = self.read_bytes.saturating_add(bytes);
            if bytes > 0 {
                return true;
            }
        }
        false
    }
}

/// Tells when both ends are gone.
struct Both(Arc<Session>);

impl Drop for Both {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_done = true;
        self.0.ask_for_care(&mut state);
    }
}

/// The reading end.
pub(super) struct Reader(Arc<Both>);

impl AsyncRead for Reader {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let session = &self.0.0;
        let mut state = session.lock();
        if state.inbox.is_empty() && !state.fetch() {
            if state.is_lost {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            state.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        let bytes = state.inbox.len().min(buffer.remaining());
        buffer.put_slice(&state.inbox[..bytes]);
        state.inbox.advance(bytes);
        if state.inbox.is_empty() {
            state.inbox = BytesMut::new();
        }
        state.count();
        // If the window was closed, the peer is told that it is open again.
        let _ = state.machine.update(session.now_ms());
        Poll::Ready(Ok(()))
    }
}

/// The writing end.
pub(super) struct Writer(Arc<Both>);

impl AsyncWrite for Writer {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let session = &self.0.0;
        let mut state = session.lock();
        if state.is_lost {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let room = WAITING_MAX.saturating_sub(state.machine.wait_snd());
        if room == 0 {
            state.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        // The machine takes no more than a hundred segments at once.
        let taken = bytes.len().min(room * state.machine.mss());
        let sent = state.machine.send(&bytes[..taken]).map_err(io::Error::other);
        state.flush(session.now_ms());
        state.count();
        session.ask_for_care(&mut state);
        Poll::Ready(sent)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Done once the peer has acknowledged everything.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.0.lock();
        if state.is_lost || state.machine.wait_snd() == 0 {
            return Poll::Ready(Ok(()));
        }
        drop(state.writer.replace(context.waker().clone()));
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use throng_channeld::frame;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn session(side: Side) -> Arc<Session> {
        let (socket, _) = DatagramSocket::bind(([127, 0, 0, 1], 0).into(), 1).expect("a free port");
        let door = Door::alone(side);
        Session::new(7, ([127, 0, 0, 1], 9).into(), (&Arc::new(socket), &Arc::default()), &door)
    }

    fn push(number: u32, data: &[u8]) -> Vec<u8> {
        segment::segment(segment::PUSH, 0, number, data)
    }

    #[tokio::test]
    async fn a_conversation_that_has_ended_is_forgotten_though_its_peer_acknowledges_nothing() {
        let session = session(Side::Client);
        let (reader, mut writer) = session.ends();
        writer.write_all(b"an answer").await.expect("there is room");
        assert_eq!(session.care(), Need::Care);
        drop((reader, writer));
        assert_eq!(session.care(), Need::End);
        assert!(session.handle(&mut push(0, b"more")), "it is no fault, and is not kept");
        assert_eq!(session.lock().received.bytes(), 0);
    }

    #[tokio::test]
    async fn a_stranger_may_have_as_much_here_as_it_may_say_and_a_server_all_that_the_window_has() {
        for (side, most) in [(Side::Client, 2 * ((16 << 10) + 2 * 1_500)), (Side::Server, usize::MAX)] {
            let session = session(side);
            let (mut reader, _writer) = session.ends();
            let data = [7; 1_400];
            let held = |session: &Session| session.lock().received.bytes();
            // All are ahead of a gap, and then in order; nobody reads.
            assert!((1..200).chain(0..200).all(|number| session.handle(&mut push(number, &data))));
            assert!(held(&session) <= most, "{side:?}: {}", held(&session));
            assert_eq!(held(&session) > 200_000, side == Side::Server);
            let mut read = pin!(async { reader.read_exact(&mut [0; frame::HEADER_BYTES]).await });
            assert!(read.as_mut().await.is_ok());
        }
    }
}
