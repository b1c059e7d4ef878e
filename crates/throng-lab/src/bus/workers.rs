//! Load workers that are found by name at a nats-server. A run and its load workers need no address of each other then.
//!
//! ```text
//! store   load-workers.NAME        the lease of the load worker of that name: its holder is a member of the bus
//! links   world `load-workers`     the words of run/word.rs, in datagrams that the bus carries (throng_edge::BusNetwork)
//! ```
//!
//! A load worker joins the bus twice, as servers of a run do: for its lease, and with another number for its link.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use throng::net::Driver;
use throng_bus::{
    Bus, Command, Entry, Event, Holder, Lease, LeaseChange, LeaseOptions, MemberId, StoreError, Subject, Ticket,
};
use throng_edge::{WorldName, address_on_bus};
use throng_machine::{clock, masked_servers};

use super::{LINKS, LinkNetwork, network, over_nats};
use crate::run::WorkerName;

/// A load worker tries so long to get its name. The store takes 5 s to remove the entry of one that was killed.
const NAME_PATIENCE: Duration = Duration::from_secs(8);
/// A run asks so long for its load workers.
const ASK_PATIENCE: Duration = Duration::from_secs(3);
/// The time between two looks at the bus.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The lease is removed within this time when the load worker ends, if the nats-server is there.
const FAREWELL: Duration = Duration::from_millis(200);
/// The only endpoint of a load worker.
const PORT: u16 = 1;

/// The lease of a load worker on its name, and the network of its link.
pub(crate) struct Registration {
    bus: Box<dyn Bus + Send>,
    lease: Lease,
    links: LinkNetwork,
}

impl Registration {
    /// Waits until the name is this process's.
    ///
    /// # Errors
    /// The nats-server is not there or does not fit, or another load worker has the name.
    pub(crate) fn begin(servers: &str, name: &WorkerName) -> Result<Registration> {
        let member = random_member();
        let links = network(servers, member | LINKS, &world()?)?;
        let bus = over_nats(servers, member)?;
        let lease = Lease::new(name.key(), MemberId(member), Default::default(), LeaseOptions::default(), 0);
        let mut registration = Registration { bus, lease, links };
        let until = clock::now().after(NAME_PATIENCE);
        while registration.turn() != Some(true) {
            ensure!(clock::now() < until, "another load worker at {} has the name {name}", masked_servers(servers));
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(registration)
    }

    /// The endpoint at which runs find the load worker.
    pub(crate) fn endpoint(&self) -> Result<Box<dyn Driver>> {
        (self.links.open)()
    }

    /// Renews the lease. Returns whether the name is this process's from now on, if that has changed.
    pub(crate) fn turn(&mut self) -> Option<bool> {
        let now = clock::now();
        self.bus.handle_timeout(now);
        while let Some(event) = self.bus.poll_event(now) {
            self.lease.handle_event(now, &event);
        }
        self.lease.handle_timeout(now);
        let mut change = None;
        while let Some(next) = self.lease.poll_change() {
            change = Some(matches!(next, LeaseChange::Taken(_)));
        }
        while let Some(command) = self.lease.poll_command(now) {
            if self.bus.handle_command(now, command).is_err() {
                self.lease.handle_refusal(now);
                break;
            }
        }
        change
    }
}

impl Drop for Registration {
    /// Gives the name up, so that the next one gets it at once.
    fn drop(&mut self) {
        self.lease.release();
        self.turn();
        // The command is on its way in a thread of the bus.
        std::thread::sleep(FAREWELL);
    }
}

/// A run on the bus of its load workers.
pub(crate) struct WorkersOnBus {
    servers: String,
    bus: Box<dyn Bus + Send>,
    links: LinkNetwork,
}

impl WorkersOnBus {
    /// # Errors
    /// The nats-server is not there or does not fit.
    pub(crate) fn join(servers: &str) -> Result<WorkersOnBus> {
        let member = random_member();
        let links = network(servers, member | LINKS, &world()?)?;
        Ok(WorkersOnBus { servers: servers.to_owned(), bus: over_nats(servers, member)?, links })
    }

    /// The address of the load worker of this name.
    ///
    /// # Errors
    /// It is not there, or the nats-server does not say.
    pub(crate) fn find(&mut self, name: &WorkerName) -> Result<SocketAddr> {
        let WorkersOnBus { servers, bus, .. } = self;
        let servers = masked_servers(servers);
        let holder = holder(&mut **bus, name.key()).with_context(|| format!("cannot ask {servers} for {name}"))?;
        let holder = holder.with_context(|| {
            let start = format!("throng lab worker --bus {servers} --name {name} --key KEY");
            format!("no load worker {name} at {servers}: start `{start}`")
        })?;
        Ok(address_on_bus(MemberId(holder.member.0 | LINKS), PORT))
    }

    /// A new endpoint of this process.
    pub(crate) fn endpoint(&self) -> Result<Box<dyn Driver>> {
        (self.links.open)()
    }
}

/// The holder of a lease; `None` if it is free.
fn holder(bus: &mut (dyn Bus + Send), key: Subject) -> Result<Option<Holder>> {
    let (mut is_asked, mut tickets) = (false, 0);
    let until = clock::now().after(ASK_PATIENCE);
    loop {
        let now = clock::now();
        bus.handle_timeout(now);
        while let Some(event) = bus.poll_event(now) {
            match event {
                Event::Got { ticket: Ticket(number), result: Ok(entry) } if number == tickets => {
                    return read(entry);
                }
                Event::Got { result: Err(StoreError::Refused), .. } => bail!("it does not let this process read"),
                // It is asked again.
                Event::Got { .. } => is_asked = false,
                _ => {}
            }
        }
        ensure!(now < until, "it does not answer");
        if !is_asked {
            tickets += 1;
            let get = Command::Get { ticket: Ticket(tickets), key: key.clone() };
            is_asked = bus.handle_command(now, get).is_ok();
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn read(entry: Option<Entry>) -> Result<Option<Holder>> {
    let Some(entry) = entry else { return Ok(None) };
    let holder = Holder::read(&entry.value, entry.revision);
    holder.map(Some).context("its entry in the store is no lease: remove it, or use another name")
}

fn world() -> Result<WorldName> {
    Ok(WorldName::new("load-workers")?)
}

/// Another one for each start of a process.
fn random_member() -> u64 {
    fastrand::u64(..) & !0xFFFF
}

#[cfg(test)]
mod tests {
    use throng_bus::{Limits, LocalHub, Revision};

    use super::*;

    #[test]
    fn a_lease_is_found_and_what_is_none_is_said() {
        let hub = LocalHub::new();
        let name: WorkerName = "east-1".parse().unwrap();
        let mut lease = Lease::new(name.key(), MemberId(7), Default::default(), LeaseOptions::default(), 0);
        let mut bus = hub.join(MemberId(7), Limits::default());
        let mut other = hub.join(MemberId(8), Limits::default());
        assert_eq!(holder(&mut other, name.key()).unwrap(), None);
        while lease.fence(clock::now()).is_none() {
            let now = clock::now();
            bus.handle_timeout(now);
            while let Some(event) = bus.poll_event(now) {
                lease.handle_event(now, &event);
            }
            while let Some(command) = lease.poll_command(now) {
                bus.handle_command(now, command).unwrap();
            }
        }
        let found = holder(&mut other, name.key()).unwrap().expect("it holds its name");
        assert_eq!(found.member, MemberId(7));
        let entry = Entry { value: b"mine"[..].into(), revision: Revision(3) };
        assert!(read(Some(entry)).unwrap_err().to_string().contains("no lease"));
    }
}
