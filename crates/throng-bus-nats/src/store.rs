//! The key-value store of JetStream.
//!
//! Reads go to the leader of the stream, not to any replica, so that a read after a write sees it. Writes go out in the order
//! of their commands.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{DeliverPolicy, ReplayPolicy, push};
use async_nats::jetstream::context::{PublishAckFuture, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use async_nats::jetstream::{Context, ContextBuilder, ErrorCode, kv};
use async_nats::{Client, header};
use bytes::Bytes;
use futures_util::StreamExt;
use throng_bus::{
    Cluster, ClusterError, Command, Entry, Event, Expect, Pattern, Revision, StoreError, Subject, Ticket, WatchId,
};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::bus::{NatsOptions, Shared};
use crate::error::{StartError, line};

/// The header with which NATS marks a removal by a client.
const OPERATION: &str = "KV-Operation";
/// How long the store keeps the mark of a removal.
const MARK_LIFE: Duration = Duration::from_secs(60);
/// The time between two attempts to list a watch.
const LIST_EVERY: Duration = Duration::from_millis(200);
/// A watch that cannot be listed for so long, although there is a connection, has failed.
const LIST_PATIENCE: Duration = Duration::from_secs(5);
/// The client keeps a place for each write that is not acknowledged for 5 s, and a ticket is open for 1 s by default: so there may be six
/// times as many places in use as tickets. Without a place a write is refused, and does not wait: messages and requests would wait behind it.
const UNANSWERED_SECONDS: usize = 6;
/// Most names of other clusters in an error.
const KNOWN_MAX: usize = 20;
/// The beginning of the names of all clusters' streams.
const STREAM_PREFIX: &str = "KV_throng-";

#[derive(Clone, Debug)]
pub(crate) struct Store {
    client: Client,
    context: Context,
    stream: Stream,
    /// The beginning of the subjects of all entries.
    prefix: String,
}

/// An entry as it lies in the stream.
struct Found {
    revision: u64,
    value: Option<Bytes>,
}

impl Store {
    /// Opens the store of a cluster, or makes it, and compares the cluster's settings.
    pub(crate) async fn open(client: &Client, options: &NatsOptions) -> Result<Store, StartError> {
        let acknowledgements = options.limits.open_tickets.saturating_mul(UNANSWERED_SECONDS);
        let context = ContextBuilder::new()
            .max_ack_inflight(acknowledgements.clamp(1, Semaphore::MAX_PERMITS))
            .backpressure_on_inflight(false)
            .build(client.clone());
        let bucket = format!("throng-{}", options.cluster.name());
        let no_store = |error: &dyn std::fmt::Display| StartError::NoStore {
            servers: options.servers.clone(),
            reason: line(error),
        };
        context.query_account().await.map_err(|error| no_store(&error))?;
        let opened = match context.get_key_value(bucket.clone()).await {
            Ok(opened) => opened,
            Err(_) if options.creates => {
                let config = kv::Config {
                    bucket: bucket.clone(),
                    description: "Throng".to_owned(),
                    history: 1,
                    num_replicas: options.replicas,
                    limit_markers: Some(MARK_LIFE),
                    ..kv::Config::default()
                };
                context.create_key_value(config).await.map_err(|error| no_store(&error))?
            }
            Err(_) => return Err(unknown(&context, options.cluster.name()).await.into()),
        };
        let prefix = format!("$KV.{bucket}.");
        let store = Store { client: client.clone(), context, stream: opened.stream, prefix };
        if options.creates {
            store.name(&options.cluster).await?;
        }
        match store.compare(&options.cluster).await {
            Err(ClusterError::Unknown { name, .. }) => Err(unknown(&store.context, &name).await.into()),
            compared => Ok(compared.map(|()| store)?),
        }
    }

    /// Carries out an operation. Returns when it is sent.
    pub(crate) async fn operate(&self, shared: &Arc<Shared>, command: Command) {
        let (shared, store) = (shared.clone(), self.clone());
        match command {
            Command::Get { ticket, key } => {
                tokio::spawn(async move {
                    let found = store.find(&key).await;
                    let result = found.map(|found| {
                        let found = found?;
                        Some(Entry { value: found.value?, revision: Revision(found.revision) })
                    });
                    shared.tell(|state| state.endpoint.handle_result(Event::Got { ticket, result }));
                });
            }
            Command::Put { ticket, key, value, expect, lives_for } => {
                let message = PublishMessage::build().payload(value);
                let message = match lives_for {
                    Some(life) => message.ttl(life),
                    None => message,
                };
                self.write(shared, ticket, key, expect, message).await;
            }
            Command::Delete { ticket, key, expect } => {
                let message = PublishMessage::build().header(OPERATION, "DEL").ttl(MARK_LIFE);
                self.write(shared, ticket, key, expect, message).await;
            }
            _ => {}
        }
    }

    /// Lists a watch, and tells its changes until the task is aborted. A watch that cannot be listed is ended: its owner would take old
    /// entries for the newest ones.
    pub(crate) async fn watch(self, shared: Arc<Shared>, watch: WatchId, pattern: Pattern, first: u32) {
        let (mut listing, mut tried_since) = (first, Instant::now());
        loop {
            let mut is_listed = false;
            // It ends with an error of the server or of the client, or without news before its end.
            drop(self.list(&shared, (watch, listing), &pattern, &mut is_listed).await);
            let (is_connected, is_reading_refused) = {
                let state = shared.lock();
                (state.endpoint.is_connected(), state.is_reading_refused)
            };
            if is_listed || !is_connected {
                tried_since = Instant::now();
            }
            if is_connected && is_reading_refused || tried_since.elapsed() >= LIST_PATIENCE {
                return shared.tell(|state| state.endpoint.handle_refused_watch(watch, listing));
            }
            tokio::time::sleep(LIST_EVERY).await;
            let next = shared.lock().endpoint.relist(watch, listing);
            let Some(next) = next else { return };
            listing = next;
        }
    }

    async fn list(
        &self,
        shared: &Shared,
        (watch, listing): (WatchId, u32),
        pattern: &Pattern,
        is_listed: &mut bool,
    ) -> Result<(), async_nats::Error> {
        let config = push::OrderedConfig {
            deliver_subject: self.client.new_inbox(),
            filter_subject: format!("{}{pattern}", self.prefix),
            replay_policy: ReplayPolicy::Instant,
            deliver_policy: DeliverPolicy::LastPerSubject,
            ..push::OrderedConfig::default()
        };
        let consumer = self.stream.create_consumer(config).await?;
        *is_listed = consumer.cached_info().num_pending == 0;
        if *is_listed {
            shared.take(|state| state.endpoint.handle_listed(watch, listing));
        }
        let mut messages = consumer.messages().await?;
        loop {
            let message = match timeout(LIST_PATIENCE, messages.next()).await {
                Ok(Some(message)) => message?,
                Ok(None) => return Ok(()),
                // After the list, a watch may be silent for long. The client notices by itself when the server forgets it then, but
                // not when the server waits to hear how far it has read.
                Err(_) if *is_listed && !shared.lock().is_reading_refused => continue,
                Err(silence) => return Err(silence.into()),
            };
            let info = message.info()?;
            let key = message.subject.as_str().strip_prefix(&self.prefix).unwrap_or_default();
            let is_mark = message.headers.as_ref().is_some_and(is_mark);
            let value = (!is_mark).then(|| message.payload.clone());
            let is_last = info.pending == 0 && !*is_listed;
            *is_listed |= is_last;
            shared.take(|state| {
                state.endpoint.handle_entry(watch, listing, key, Revision(info.stream_sequence), value);
                if is_last {
                    state.endpoint.handle_listed(watch, listing);
                }
            });
        }
    }

    async fn write(&self, shared: Arc<Shared>, ticket: Ticket, key: Subject, expect: Expect, message: PublishMessage) {
        let expected = match expect {
            Expect::Anything => None,
            Expect::Absent => Some(0),
            Expect::Revision(revision) => Some(revision.0),
        };
        let acknowledgement = self.send(&key, message.clone(), expected).await;
        let store = self.clone();
        tokio::spawn(async move {
            let mut result = outcome(acknowledgement).await;
            if result == Err(StoreError::Refused) && expect == Expect::Absent {
                result = store.write_over_mark(&key, message).await;
            }
            let result = result.map(Revision);
            shared.tell(|state| state.endpoint.handle_result(Event::Written { ticket, result }));
        });
    }

    /// A key that was removed has a mark, which has to be the newest write of the key then.
    async fn write_over_mark(&self, key: &Subject, message: PublishMessage) -> Result<u64, StoreError> {
        match self.find(key).await? {
            Some(Found { value: Some(_), .. }) => Err(StoreError::Refused),
            Some(Found { revision, value: None }) => outcome(self.send(key, message, Some(revision)).await).await,
            None => outcome(self.send(key, message, Some(0)).await).await,
        }
    }

    async fn send(
        &self,
        key: &Subject,
        message: PublishMessage,
        expected: Option<u64>,
    ) -> Result<PublishAckFuture, StoreError> {
        let message = match expected {
            Some(expected) => message.expected_last_subject_sequence(expected),
            None => message,
        };
        self.context.send_publish(format!("{}{key}", self.prefix), message).await.map_err(|_| StoreError::Unknown)
    }

    async fn find(&self, key: &Subject) -> Result<Option<Found>, StoreError> {
        match self.stream.get_last_raw_message_by_subject(&format!("{}{key}", self.prefix)).await {
            Ok(message) => {
                let value = (!is_mark(&message.headers)).then_some(message.payload);
                Ok(Some(Found { revision: message.sequence, value }))
            }
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(_) => Err(StoreError::Unknown),
        }
    }

    /// Writes the cluster's id, if there is none.
    async fn name(&self, cluster: &Cluster) -> Result<(), ClusterError> {
        let message = PublishMessage::build().payload(cluster.value());
        match outcome(self.send(&id_key(cluster)?, message, Some(0)).await).await {
            Ok(_) | Err(StoreError::Refused) => Ok(()),
            Err(_) => Err(ClusterError::NoAnswer { name: cluster.name().to_owned() }),
        }
    }

    /// Compares the cluster's id with the one in the store. Names no other clusters.
    pub(crate) async fn compare(&self, cluster: &Cluster) -> Result<(), ClusterError> {
        let name = || cluster.name().to_owned();
        let subject = format!("{}{}", self.prefix, id_key(cluster)?);
        match self.stream.get_last_raw_message_by_subject(&subject).await {
            Ok(message) if !is_mark(&message.headers) => cluster.compare(&message.payload),
            Err(error) if !is_missing(&error.kind()) => Err(ClusterError::NoAnswer { name: name() }),
            Ok(_) | Err(_) => Err(ClusterError::Unknown { name: name(), known: Vec::new() }),
        }
    }
}

/// The key of the cluster's id.
fn id_key(cluster: &Cluster) -> Result<Subject, ClusterError> {
    Subject::new("cluster").map_err(|_| ClusterError::Foreign { name: cluster.name().to_owned() })
}

/// The store has answered that the entry is not there, or that it is not there itself.
fn is_missing(kind: &LastRawMessageErrorKind) -> bool {
    match kind {
        LastRawMessageErrorKind::NoMessageFound => true,
        LastRawMessageErrorKind::JetStream(error) => error.error_code() == ErrorCode::STREAM_NOT_FOUND,
        _ => false,
    }
}

async fn outcome(acknowledgement: Result<PublishAckFuture, StoreError>) -> Result<u64, StoreError> {
    match acknowledgement?.await {
        Ok(acknowledgement) => Ok(acknowledgement.sequence),
        Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => Err(StoreError::Refused),
        Err(_) => Err(StoreError::Unknown),
    }
}

fn is_mark(headers: &HeaderMap) -> bool {
    headers.get(OPERATION).is_some() || headers.get(header::NATS_MARKER_REASON).is_some()
}

async fn unknown(context: &Context, name: &str) -> ClusterError {
    let names = context.stream_names().take(KNOWN_MAX * 10).collect::<Vec<_>>().await;
    let clusters = names.iter().flatten().filter_map(|stream| stream.strip_prefix(STREAM_PREFIX));
    let known = clusters.filter(|other| *other != name).take(KNOWN_MAX).map(str::to_owned).collect();
    ClusterError::Unknown { name: name.to_owned(), known }
}
