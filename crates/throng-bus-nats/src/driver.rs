//! The runtime's side: sends what the endpoint wants to send, and hands it what arrives.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use async_nats::{Client, ConnectErrorKind, ConnectOptions, RequestErrorKind, ServerError};
use futures_util::StreamExt;
use throng_bus::endpoint::Outgoing;
use throng_bus::{ClusterError, Pattern, RequestError, SubscriptionId, Ticket, WatchId};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::bus::{NatsOptions, SERVER_VERSION_MIN, Secret, Shared, State};
use crate::error::{StartError, line};
use crate::store::Store;

/// The time for what waits when the bus ends.
const FAREWELL: Duration = Duration::from_secs(1);
/// Bytes of an envelope's head, or of the headers of a write.
const HEADS_BYTES_MAX: usize = 256;
/// The beginning of all addresses of answers.
const INBOX_PREFIX: &str = "_INBOX.";
/// The time between two attempts to connect.
const RECONNECT_EVERY: Duration = Duration::from_millis(200);

/// The store has so long to say the cluster's id, before messages go over a new connection all the same.
const COMPARE_PATIENCE: Duration = Duration::from_secs(1);
/// The time between two questions to a store that does not answer.
const COMPARE_EVERY: Duration = Duration::from_secs(1);
/// The time until a server that does not fit is left.
const UNFIT_PAUSE: Duration = Duration::from_secs(2);

struct Driver {
    shared: Arc<Shared>,
    client: Client,
    store: Store,
    options: NatsOptions,
    prefix: String,
    subscriptions: HashMap<SubscriptionId, (Pattern, AbortHandle)>,
    watches: HashMap<WatchId, AbortHandle>,
}

/// Connects, says whether that worked, and runs until the caller's end is dropped.
pub(crate) async fn run(shared: &Arc<Shared>, options: &NatsOptions, started: &Sender<Result<(), StartError>>) {
    let opened = timeout(options.patience, open(shared, options)).await.unwrap_or_else(|_| {
        let reason = format!("no answer within {:?}", options.patience);
        Err(StartError::Unreachable { servers: options.servers.clone(), reason })
    });
    let mut driver = match opened {
        Ok(driver) => driver,
        Err(error) => {
            drop(started.send(Err(error)));
            return;
        }
    };
    shared.tell(|state| {
        state.is_ready = true;
        state.connections = 1;
        state.is_linked = true;
        let now = state.now;
        state.endpoint.handle_connected(now);
    });
    if started.send(Ok(())).is_err() {
        return;
    }
    // A server that is silent or away takes nothing.
    let overdue = async {
        shared.stop.notified().await;
        tokio::time::sleep(FAREWELL).await;
    };
    tokio::select! {
        () = driver.serve() => {}
        () = overdue => {}
    }
}

async fn open(shared: &Arc<Shared>, options: &NatsOptions) -> Result<Driver, StartError> {
    let client = connect(shared, options).await?;
    check_server(&client, options, &options.servers)?;
    let store = Store::open(&client, options).await?;
    Ok(Driver {
        shared: shared.clone(),
        client,
        store,
        options: options.clone(),
        prefix: format!("throng.{}.", options.cluster.name()),
        subscriptions: HashMap::new(),
        watches: HashMap::new(),
    })
}

/// Whether a server is new enough, and takes messages as long as ours. An error calls it `named`.
fn check_server(client: &Client, options: &NatsOptions, named: &str) -> Result<(), StartError> {
    let servers = || named.to_owned();
    let (major, minor) = SERVER_VERSION_MIN;
    if !client.is_server_compatible(i64::from(major), i64::from(minor), 0) {
        return Err(StartError::TooOld { servers: servers(), found: line(&client.server_info().version) });
    }
    let most = client.server_info().max_payload;
    let needed = options.limits.payload_bytes.saturating_add(HEADS_BYTES_MAX);
    if most < needed {
        return Err(StartError::Payload { servers: servers(), most, needed });
    }
    Ok(())
}

async fn connect(shared: &Arc<Shared>, options: &NatsOptions) -> Result<Client, StartError> {
    let (theirs, state) = (shared.clone(), shared.clone());
    let mut connect = ConnectOptions::new()
        .name(format!("throng {} {}", options.cluster.name(), options.member))
        .ping_interval(options.ping_every)
        .reconnect_delay_callback(|_| RECONNECT_EVERY)
        .reconnect_to_server_callback(move |servers, _| {
            let server = state.lock().next_server(servers);
            async move { server }
        })
        .event_callback(move |event| {
            handle_event(&theirs, &event);
            async {}
        });
    connect = match &options.secret {
        Secret::None => connect,
        Secret::Token(token) => connect.token(token.clone()),
        Secret::User(user, password) => connect.user_and_password(user.clone(), password.clone()),
    };
    let addresses: Vec<&str> = options.servers.split(',').map(str::trim).collect();
    connect.connect(addresses).await.map_err(|error| {
        let servers = options.servers.clone();
        match error.kind() {
            ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                StartError::NotAllowed { servers }
            }
            _ => StartError::Unreachable { servers, reason: line(&error) },
        }
    })
}

/// Whether the server refuses what tells it how far a consumer has read. Its text names the subject.
fn is_refused_reading(text: &str) -> bool {
    text.to_ascii_lowercase().starts_with("permissions violation for publish to \"$js.fc.")
}

fn handle_event(shared: &Shared, event: &async_nats::Event) {
    shared.tell(|state| {
        if !state.is_ready {
            return;
        }
        match event {
            async_nats::Event::Connected => {
                // The caller may use it when the server has been compared.
                state.connections += 1;
                state.is_linked = true;
                state.is_reading_refused = false;
                state.endpoint.handle_disconnected();
            }
            async_nats::Event::Disconnected | async_nats::Event::Closed => {
                state.is_linked = false;
                state.endpoint.handle_disconnected();
            }
            async_nats::Event::SlowConsumer(_) => state.endpoint.handle_dropped(),
            async_nats::Event::ServerError(ServerError::Other(text)) if is_refused_reading(text) => {
                state.is_reading_refused = true;
            }
            _ => {}
        }
    });
    shared.work.notify_one();
}

impl Driver {
    async fn serve(&mut self) {
        let mut connections = 1;
        loop {
            self.shared.work.notified().await;
            let (newest, is_stopping) = {
                let state = self.shared.lock();
                (state.connections, state.is_stopping)
            };
            if std::mem::replace(&mut connections, newest) != newest {
                self.forget_ended();
                let comparison = Comparison {
                    shared: self.shared.clone(),
                    client: self.client.clone(),
                    store: self.store.clone(),
                    options: self.options.clone(),
                    connection: newest,
                };
                tokio::spawn(comparison.run());
            }
            loop {
                let outgoing = self.shared.lock().endpoint.poll_outgoing();
                let Some(outgoing) = outgoing else { break };
                self.send(outgoing).await;
            }
            if is_stopping {
                drop(self.client.flush().await);
                return;
            }
        }
    }

    /// Ends the subscriptions that were ended while there was no connection.
    fn forget_ended(&mut self) {
        let state = self.shared.lock();
        self.subscriptions.retain(|&subscription, (_, task)| {
            let stays = state.endpoint.is_subscribed(subscription);
            if !stays {
                task.abort();
            }
            stays
        });
    }

    async fn send(&mut self, outgoing: Outgoing) {
        match outgoing {
            // A message that cannot be sent is found missing by its number.
            Outgoing::Publish { subject, bytes } => {
                drop(self.client.publish(format!("{}{subject}", self.prefix), bytes).await);
            }
            Outgoing::Request { ticket, subject, bytes, patience } => {
                let subject = format!("{}{subject}", self.prefix);
                tokio::spawn(request(self.shared.clone(), self.client.clone(), ticket, subject, bytes, patience));
            }
            Outgoing::Reply { to, bytes } => {
                if let Some(address) = to.address {
                    drop(self.client.publish(address.to_string(), bytes).await);
                }
            }
            Outgoing::Subscribe { subscription, pattern } => self.subscribe(subscription, pattern).await,
            Outgoing::Unsubscribe { subscription } => {
                if let Some((_, task)) = self.subscriptions.remove(&subscription) {
                    task.abort();
                }
            }
            Outgoing::Store(command) => self.store.operate(&self.shared, command).await,
            Outgoing::Watch { watch, pattern, listing } => {
                let task = tokio::spawn(self.store.clone().watch(self.shared.clone(), watch, pattern, listing));
                if let Some(before) = self.watches.insert(watch, task.abort_handle()) {
                    before.abort();
                }
            }
            Outgoing::Unwatch { watch } => {
                if let Some(task) = self.watches.remove(&watch) {
                    task.abort();
                }
            }
            _ => {}
        }
    }

    /// The client subscribes again by itself when it has connected again, so a subscription that is there stays.
    async fn subscribe(&mut self, subscription: SubscriptionId, pattern: Pattern) {
        if self.subscriptions.get(&subscription).is_some_and(|(before, _)| *before == pattern) {
            return;
        }
        let Ok(mut messages) = self.client.subscribe(format!("{}{pattern}", self.prefix)).await else { return };
        let (shared, cut) = (self.shared.clone(), self.prefix.len());
        let task = tokio::spawn(async move {
            while let Some(message) = messages.next().await {
                let subject = message.subject.as_str().get(cut..).unwrap_or_default();
                // A peer chooses this address, and we would write to it: so it may only be one for answers.
                let reply = message.reply.as_ref().filter(|reply| reply.as_str().starts_with(INBOX_PREFIX));
                let reply = reply.map(|reply| Arc::from(reply.as_str()));
                shared.take(|state| {
                    state.endpoint.handle_delivery(subscription, subject, &message.payload, reply);
                });
            }
        });
        if let Some((_, before)) = self.subscriptions.insert(subscription, (pattern, task.abort_handle())) {
            before.abort();
        }
    }
}

/// Compares the server of a new connection with what this member needs. It may be another one than before.
struct Comparison {
    shared: Arc<Shared>,
    client: Client,
    store: Store,
    options: NatsOptions,
    /// The number of the connection.
    connection: u64,
}

impl Comparison {
    async fn run(self) {
        loop {
            match self.compare().await {
                Err(StartError::Cluster(ClusterError::NoAnswer { .. })) => {
                    // Messages need no store, and one that has lost its leader has none for seconds. It is asked again.
                    if !self.tell(State::connect) {
                        return;
                    }
                    tokio::time::sleep(COMPARE_EVERY).await;
                }
                Err(error) => return self.give_up(&error.to_string()).await,
                Ok(()) => {
                    self.tell(|state| {
                        state.problem = None;
                        state.connect();
                    });
                    return;
                }
            }
        }
    }

    async fn compare(&self) -> Result<(), StartError> {
        let cluster = &self.options.cluster;
        let compared = timeout(COMPARE_PATIENCE, self.store.compare(cluster)).await;
        compared.unwrap_or_else(|_| Err(ClusterError::NoAnswer { name: cluster.name().to_owned() }))?;
        let info = self.client.server_info();
        check_server(&self.client, &self.options, &line(&format!("{}:{}", info.host, info.port)))
    }

    /// Changes the state, unless the connection is over. False then.
    fn tell(&self, change: impl FnOnce(&mut State)) -> bool {
        self.shared.tell(|state| {
            let holds = state.is_linked && state.connections == self.connection;
            if holds {
                change(state);
            }
            holds
        })
    }

    /// The server does not fit: says so once, and connects again after a while, to another one if there are several.
    async fn give_up(self, problem: &str) {
        let mut is_news = false;
        let holds = self.tell(|state| {
            is_news = state.problem.as_deref() != Some(problem);
            state.problem = Some(problem.to_owned());
            state.endpoint.handle_unfit();
        });
        if is_news {
            (self.options.note)(problem);
        }
        tokio::time::sleep(UNFIT_PAUSE).await;
        if holds && self.tell(|_| ()) {
            drop(self.client.force_reconnect().await);
        }
    }
}

async fn request(
    shared: Arc<Shared>,
    client: Client,
    ticket: Ticket,
    subject: String,
    bytes: bytes::Bytes,
    patience: Duration,
) {
    let request = async_nats::Request::new().payload(bytes).timeout(Some(patience));
    match client.send_request(subject, request).await {
        Ok(message) => shared.tell(|state| state.endpoint.handle_answer(ticket, Ok(&message.payload))),
        Err(error) if error.kind() == RequestErrorKind::NoResponders => {
            shared.tell(|state| state.endpoint.handle_answer(ticket, Err(RequestError::NobodyListens)));
        }
        // The endpoint keeps the time, and ends all requests when the connection is lost.
        Err(_) => {}
    }
}
