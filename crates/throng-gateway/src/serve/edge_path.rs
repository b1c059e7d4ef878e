//! The path between a gateway and one of its edges: a TCP connection. Both ends have to know the same key.
//!
//! ```text
//!   edge                                                      home
//!     "THRE" version u32  settings u64  nonce 32 bytes  -->
//!                              <--  nonce 32 bytes  HMAC-SHA256(key, "home" edge's nonce, home's nonce)
//!     HMAC-SHA256(key, "edge" edge's nonce, home's nonce)  -->
//!                              <--  0 tick u64, or 1 length u16 text: why not
//!   then, both ways
//!     length u32  frame: see throng_gateway_engine::edge
//! ```
//!
//! Numbers are little-endian. `settings` is a hash of the settings that both have to share. Frames are neither encrypted nor
//! signed: use the path only in a network that others cannot reach.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ring::hmac;
use throng_gateway_engine::edge::{EdgeFault, EdgeOutbox, FRAME_MAX_BYTES, VERSION};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::memory::{Holding, Memory, Part};
use super::options::EdgeSecret;

const MAGIC: &[u8; 4] = b"THRE";
const NONCE_BYTES: usize = 32;
const PROOF_BYTES: usize = 32;
/// Longest text of a refusal.
const TEXT_MAX_BYTES: usize = 500;
/// How long either end waits for the other one's part of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Frames are written together up to this.
const WRITE_BYTES: usize = 256 << 10;
/// Frames are read together up to this. Most are shorter than a tenth of it.
const READ_BYTES: usize = 64 << 10;

/// Why there is no path.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PathError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it does not answer")]
    Silent,
    #[error("its first bytes are not those of an edge")]
    Stranger,
    #[error("it has another key: both need the same file for -edgekey")]
    Key,
    /// The home's answer.
    #[error("{0}")]
    Refused(String),
    #[error("the system has no random numbers")]
    Chance,
}

/// Frames for the other end. The engine's thread writes them to the socket as long as the kernel takes all of them at once: to wake a
/// task costs more than the write. The rest waits for the task, which has the socket until all of it is written.
pub(crate) struct PathQueue {
    state: Mutex<State>,
    /// Bytes that wait, heads of frames included. The memory of one frame that is partly written is more.
    bytes: AtomicUsize,
    wake: Notify,
}

struct State {
    /// Heads and contents of frames that wait. The first may lack its beginning, which is written.
    chunks: VecDeque<Bytes>,
    /// The socket, while the task does not have it.
    socket: Option<OwnedWriteHalf>,
    fault: Option<EdgeFault>,
    holding: Holding,
}

impl PathQueue {
    pub(crate) fn new(memory: &Arc<Memory>) -> Arc<PathQueue> {
        let holding = Holding::new(memory, Part::Queues, 0);
        let state = State { chunks: VecDeque::new(), socket: None, fault: None, holding };
        Arc::new(PathQueue { state: Mutex::new(state), bytes: AtomicUsize::new(0), wake: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes some of what waits.
    fn take(&self) -> Option<Vec<u8>> {
        let mut state = self.lock();
        let mut out = Vec::new();
        while out.len() < WRITE_BYTES
            && let Some(chunk) = state.chunks.pop_front()
        {
            out.extend_from_slice(&chunk);
        }
        (!out.is_empty()).then_some(out)
    }

    /// So many bytes of [`take`](Self::take) are on their way.
    fn written(&self, bytes: usize) {
        let mut state = self.lock();
        if state.fault.is_none() {
            let left = self.bytes.fetch_sub(bytes, Ordering::Relaxed) - bytes;
            state.holding.set(left);
        }
    }

    /// Leaves the socket to the engine until something is left over. `None` once the path is to end.
    async fn lend(&self, socket: OwnedWriteHalf) -> Option<OwnedWriteHalf> {
        self.lock().socket = Some(socket);
        loop {
            {
                let mut state = self.lock();
                if state.fault.is_some() {
                    return None;
                }
                if !state.chunks.is_empty() {
                    return state.socket.take();
                }
            }
            self.wake.notified().await;
        }
    }

    /// Waits until the path is to end.
    async fn closed(&self) {
        while self.fault().is_none() {
            self.wake.notified().await;
        }
    }

    /// Why the path was closed here, if it was.
    pub(crate) fn fault(&self) -> Option<EdgeFault> {
        self.lock().fault
    }
}

/// The engine's end of a [`PathQueue`].
#[derive(Clone)]
pub(crate) struct PathOutbox(pub(crate) Arc<PathQueue>);

impl EdgeOutbox for PathOutbox {
    fn queued_bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }

    fn send(&self, frame: Bytes) {
        let mut state = self.0.lock();
        if state.fault.is_some() {
            return;
        }
        let head = (frame.len() as u32).to_le_bytes();
        let written = match &state.socket {
            Some(socket) if state.chunks.is_empty() => write_now(socket, &head, &frame),
            _ => 0,
        };
        let waiting_bytes = head.len() + frame.len() - written;
        if waiting_bytes == 0 {
            return;
        }
        if written < head.len() {
            state.chunks.push_back(Bytes::copy_from_slice(&head[written..]));
        }
        state.chunks.push_back(frame.slice(written.saturating_sub(head.len())..));
        let bytes = self.0.bytes.fetch_add(waiting_bytes, Ordering::Relaxed) + waiting_bytes;
        state.holding.set(bytes);
        drop(state);
        self.0.wake.notify_one();
    }

    fn close(&self, fault: EdgeFault) {
        let mut state = self.0.lock();
        state.fault.get_or_insert(fault);
        state.chunks.clear();
        state.socket = None;
        self.0.bytes.store(0, Ordering::Relaxed);
        state.holding.set(0);
        drop(state);
        self.0.wake.notify_one();
    }
}

/// Writes what the kernel takes at once. Returns how many bytes that are. A socket that has failed takes nothing: the task meets the
/// error.
fn write_now(socket: &OwnedWriteHalf, head: &[u8], frame: &[u8]) -> usize {
    let mut written = 0;
    loop {
        let (head, frame) = (&head[written.min(head.len())..], &frame[written.saturating_sub(head.len())..]);
        if head.is_empty() && frame.is_empty() {
            return written;
        }
        match socket.try_write_vectored(&[IoSlice::new(head), IoSlice::new(frame)]) {
            Ok(bytes) if bytes > 0 => written += bytes,
            _ => return written,
        }
    }
}

/// Takes the socket back from the engine when the task ends, in whatever way: without its other half, the path is closed then.
struct TakeBack<'a>(&'a PathQueue);

impl Drop for TakeBack<'_> {
    fn drop(&mut self) {
        self.0.lock().socket = None;
    }
}

/// Writes what the engine leaves over, until the path is to end. A write that is under way then is cut off: the other end may not read at
/// all. If that leaves half a frame, the other end takes it for the loss of the path.
pub(crate) async fn write_frames(queue: &PathQueue, mut socket: OwnedWriteHalf) -> io::Result<()> {
    let _take_back = TakeBack(queue);
    loop {
        while let Some(bytes) = queue.take() {
            tokio::select! {
                written = socket.write_all(&bytes) => written?,
                () = queue.closed() => return Ok(()),
            }
            queue.written(bytes.len());
        }
        match queue.lend(socket).await {
            Some(lent) => socket = lent,
            None => return Ok(()),
        }
    }
}

/// Reads frames with few system calls.
pub(crate) fn frame_reader<R: AsyncRead>(reader: R) -> BufReader<R> {
    BufReader::with_capacity(READ_BYTES, reader)
}

/// The next frame. `None` at the end of the path.
pub(crate) async fn read_frame<R: AsyncRead + Unpin>(reader: &mut BufReader<R>) -> io::Result<Option<Bytes>> {
    let length = match reader.read_u32_le().await {
        Ok(length) => length as usize,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    };
    if length > FRAME_MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame that is too long"));
    }
    // Beyond this it grows as bytes come, and not because a number says so.
    let mut frame = BytesMut::with_capacity(length.min(READ_BYTES));
    let mut body = reader.take(length as u64);
    while frame.len() < length {
        if body.read_buf(&mut frame).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(Some(frame.freeze()))
}

/// The proof of one end that it knows the key, for these nonces.
fn proof(secret: &EdgeSecret, who: &[u8; 4], nonces: [&[u8; NONCE_BYTES]; 2]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret.0), &[&who[..], &nonces[0][..], &nonces[1][..]].concat())
}

fn is_proof(secret: &EdgeSecret, who: &[u8; 4], nonces: [&[u8; NONCE_BYTES]; 2], proof: &[u8]) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &secret.0);
    hmac::verify(&key, &[&who[..], &nonces[0][..], &nonces[1][..]].concat(), proof).is_ok()
}

fn nonce() -> Result<[u8; NONCE_BYTES], PathError> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|_| PathError::Chance)?;
    Ok(nonce)
}

/// Waits for the other end, which may not take for ever.
async fn in_time<T>(part: impl Future<Output = Result<T, PathError>>) -> Result<T, PathError> {
    timeout(HANDSHAKE, part).await.map_err(|_| PathError::Silent)?
}

/// An edge's part. The tick of the home.
pub(crate) async fn greet_home<S>(stream: &mut S, secret: &EdgeSecret, settings: u64) -> Result<u64, PathError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    in_time(async {
        let own = nonce()?;
        let hello = [&MAGIC[..], &VERSION.to_le_bytes(), &settings.to_le_bytes(), &own].concat();
        stream.write_all(&hello).await?;
        let (mut other, mut theirs) = ([0; NONCE_BYTES], [0; PROOF_BYTES]);
        stream.read_exact(&mut other).await?;
        stream.read_exact(&mut theirs).await?;
        if !is_proof(secret, b"home", [&own, &other], &theirs) {
            return Err(PathError::Key);
        }
        stream.write_all(proof(secret, b"edge", [&own, &other]).as_ref()).await?;
        if stream.read_u8().await? == 0 {
            return Ok(stream.read_u64_le().await?);
        }
        let mut text = vec![0; usize::from(stream.read_u16_le().await?).min(TEXT_MAX_BYTES)];
        stream.read_exact(&mut text).await?;
        Err(PathError::Refused(String::from_utf8_lossy(&text).into_owned()))
    })
    .await
}

/// A home's part, up to its answer.
pub(crate) async fn greet_edge<S>(stream: &mut S, secret: &EdgeSecret, settings: u64) -> Result<(), PathError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    in_time(async {
        let mut magic = [0; 4];
        stream.read_exact(&mut magic).await?;
        if &magic != MAGIC {
            return Err(PathError::Stranger);
        }
        let (version, theirs) = (stream.read_u32_le().await?, stream.read_u64_le().await?);
        let mut other = [0; NONCE_BYTES];
        stream.read_exact(&mut other).await?;
        let own = nonce()?;
        stream.write_all(&own).await?;
        stream.write_all(proof(secret, b"home", [&other, &own]).as_ref()).await?;
        let mut proof = [0; PROOF_BYTES];
        stream.read_exact(&mut proof).await?;
        if !is_proof(secret, b"edge", [&other, &own], &proof) {
            return Err(PathError::Key);
        }
        let trouble = if version != VERSION {
            format!("the home speaks version {VERSION} of the edges' protocol, and the edge version {version}")
        } else if theirs != settings {
            "the home has other channel types or descriptors: give both the same -chs and -descriptors".into()
        } else {
            return Ok(());
        };
        refuse_edge(stream, &trouble).await?;
        Err(PathError::Refused(trouble))
    })
    .await
}

/// Tells an edge why it is not let in.
pub(crate) async fn refuse_edge<W: AsyncWrite + Unpin>(stream: &mut W, text: &str) -> Result<(), PathError> {
    let mut text = text.as_bytes();
    text = &text[..text.len().min(TEXT_MAX_BYTES)];
    stream.write_all(&[&[1][..], &(text.len() as u16).to_le_bytes(), text].concat()).await?;
    Ok(())
}

/// Lets an edge in.
pub(crate) async fn welcome_edge<W: AsyncWrite + Unpin>(stream: &mut W, tick: u64) -> Result<(), PathError> {
    stream.write_all(&[&[0][..], &tick.to_le_bytes()].concat()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpSocket, TcpStream};

    use super::*;

    fn secret(byte: u8) -> EdgeSecret {
        EdgeSecret([byte; 32])
    }

    async fn meet(edge: (EdgeSecret, u64), home: (EdgeSecret, u64)) -> (Result<u64, PathError>, Result<(), PathError>) {
        let (mut near, mut far) = tokio::io::duplex(1 << 10);
        let at_home = async {
            let greeted = greet_edge(&mut far, &home.0, home.1).await;
            if greeted.is_ok() {
                welcome_edge(&mut far, 4_711).await.expect("it waits");
            }
            drop(far);
            greeted
        };
        tokio::join!(greet_home(&mut near, &edge.0, edge.1), at_home)
    }

    #[tokio::test]
    async fn two_with_one_key_meet_and_the_edge_learns_the_tick() {
        let (edge, home) = meet((secret(1), 7), (secret(1), 7)).await;
        assert_eq!(edge.expect("let in"), 4_711);
        home.expect("it is an edge");
    }

    #[tokio::test]
    async fn another_key_is_refused_at_both_ends() {
        let (edge, home) = meet((secret(1), 7), (secret(2), 7)).await;
        assert!(matches!(edge, Err(PathError::Key)) && home.is_err());
    }

    #[tokio::test]
    async fn other_settings_are_refused_in_one_line() {
        let (edge, _) = meet((secret(1), 7), (secret(1), 8)).await;
        let text = edge.expect_err("refused").to_string();
        assert!(text.contains("-chs") && text.contains("-descriptors") && !text.contains('\n'), "{text}");
    }

    #[tokio::test]
    async fn other_first_bytes_are_refused() {
        let (mut near, mut far) = tokio::io::duplex(1 << 10);
        near.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("room");
        assert!(matches!(greet_edge(&mut far, &secret(1), 7).await, Err(PathError::Stranger)));
    }

    /// The ends of a connection whose buffers have room for about this.
    const SOCKET_BYTES: u32 = 128 << 10;

    async fn pair() -> (TcpStream, TcpStream) {
        let socket = || {
            let socket = TcpSocket::new_v4().expect("a socket");
            socket.set_send_buffer_size(SOCKET_BYTES).expect("a length");
            socket.set_recv_buffer_size(SOCKET_BYTES).expect("a length");
            socket
        };
        let listener = socket();
        listener.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
        let listener = listener.listen(1).expect("it is bound");
        let near = socket().connect(listener.local_addr().expect("it is bound")).await.expect("it listens");
        (near, listener.accept().await.expect("it has come").0)
    }

    #[tokio::test]
    async fn a_task_that_is_dropped_closes_the_path_although_the_engine_has_the_socket() {
        let queue = PathQueue::new(&Arc::default());
        let (near, far) = pair().await;
        let (reader, writer) = near.into_split();
        {
            let mut task = std::pin::pin!(write_frames(&queue, writer));
            assert!(timeout(Duration::from_millis(1), &mut task).await.is_err(), "nothing waits");
            assert!(queue.lock().socket.is_some());
        }
        drop(reader);
        let end = timeout(HANDSHAKE, async { read_frame(&mut frame_reader(far)).await }).await.expect("it is closed");
        assert!(end.expect("in good order").is_none());
    }

    #[tokio::test]
    async fn frames_come_as_they_were_sent_and_too_long_ones_are_not_read() {
        let queue = PathQueue::new(&Arc::default());
        let outbox = PathOutbox(Arc::clone(&queue));
        outbox.send(Bytes::from_static(b"one"));
        outbox.send(Bytes::from(vec![2; 100_000]));
        assert_eq!(outbox.queued_bytes(), 100_011);
        let (near, far) = pair().await;
        let (_reader, writer) = near.into_split();
        let mut far = frame_reader(far);
        let read = async {
            assert_eq!(read_frame(&mut far).await.expect("a frame").as_deref(), Some(&b"one"[..]));
            assert_eq!(read_frame(&mut far).await.expect("a frame").map(|frame| frame.len()), Some(100_000));
            // From now on the task is not needed.
            while queue.lock().socket.is_none() {
                tokio::task::yield_now().await;
            }
            outbox.send(Bytes::from_static(b"three"));
            assert_eq!(outbox.queued_bytes(), 0, "the kernel has it");
            assert_eq!(read_frame(&mut far).await.expect("a frame").as_deref(), Some(&b"three"[..]));
            write_now(
                queue.lock().socket.as_ref().expect("nothing waits"),
                &(FRAME_MAX_BYTES as u32 + 1).to_le_bytes(),
                &[],
            );
            let error = read_frame(&mut far).await.expect_err("nobody sends that");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            outbox.close(EdgeFault::Slow);
        };
        let (written, ()) = tokio::join!(write_frames(&queue, writer), read);
        written.expect("nothing is wrong with the connection");
        assert_eq!(queue.fault(), Some(EdgeFault::Slow));
    }

    /// Frames of all lengths, to a reader that often has no room: whatever the kernel takes of each, all bytes come in order.
    #[tokio::test]
    async fn what_the_kernel_does_not_take_at_once_follows_in_order() {
        const FRAMES: usize = 1_000;
        let memory = Arc::<Memory>::default();
        let queue = PathQueue::new(&memory);
        let outbox = PathOutbox(Arc::clone(&queue));
        let (near, far) = pair().await;
        let (_reader, writer) = near.into_split();
        let mut far = frame_reader(far);
        let mut random = fastrand::Rng::with_seed(1);
        let lengths: Vec<usize> = (0..FRAMES).map(|_| 1 << random.u32(0..15)).collect();
        let (mut direct, mut waited) = (0, 0);
        let talk = async {
            for (number, &length) in lengths.iter().enumerate() {
                let before = outbox.queued_bytes();
                outbox.send(Bytes::from(vec![number as u8; length]));
                match (before, outbox.queued_bytes()) {
                    (0, 0) => direct += 1,
                    _ => waited += 1,
                }
                while number % 10 == 0 && queue.lock().socket.is_none() {
                    tokio::task::yield_now().await;
                }
            }
        };
        let read = async {
            for (number, &length) in lengths.iter().enumerate() {
                let frame = read_frame(&mut far).await.expect("a frame").expect("the path is open");
                assert!(frame.len() == length && frame.iter().all(|&byte| byte == number as u8), "{number}");
            }
            outbox.close(EdgeFault::Slow);
        };
        let (written, (), ()) = tokio::join!(write_frames(&queue, writer), talk, read);
        written.expect("nothing is wrong with the connection");
        assert!(direct > FRAMES / 20 && waited > FRAMES / 20, "{direct} at once, {waited} later");
        assert_eq!((outbox.queued_bytes(), memory.used_bytes()), (0, 0));
    }

    #[tokio::test]
    async fn a_path_that_is_closed_ends_although_the_other_end_reads_nothing() {
        let memory = Arc::<Memory>::default();
        let queue = PathQueue::new(&memory);
        let outbox = PathOutbox(Arc::clone(&queue));
        (0..3).for_each(|_| outbox.send(Bytes::from(vec![2; 15 << 20])));
        let (near, far) = pair().await;
        let (reader, writer) = near.into_split();
        let close = async {
            tokio::task::yield_now().await;
            outbox.close(EdgeFault::Slow);
        };
        let (written, ()) = timeout(HANDSHAKE, async { tokio::join!(write_frames(&queue, writer), close) })
            .await
            .expect("it waits for nobody");
        written.expect("nothing is wrong with the connection");
        assert_eq!((outbox.queued_bytes(), memory.used_bytes()), (0, 0));
        drop(reader);
        let mut far = frame_reader(far);
        // The other end learns that the path is lost, and not that it has ended in good order.
        assert_eq!(read_frame(&mut far).await.expect_err("half a frame").kind(), io::ErrorKind::UnexpectedEof);
    }
}
