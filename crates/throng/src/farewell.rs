//! The last packets to replaced connections: they tell a player's old program that a newer one has replaced it.

use std::collections::VecDeque;
use std::net::SocketAddr;

use throng_wire::Time;

/// Datagrams that wait for their time. Further ones are left out: the old program then times out.
const FAREWELLS_MAX: usize = 4_096;

/// Sealed datagrams, to be sent at their times.
#[derive(Default)]
pub(crate) struct Farewells {
    waiting: VecDeque<(Time, SocketAddr, Vec<u8>)>,
    pub(crate) left_out: u64,
}

impl Farewells {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes the last packets to one address.
    pub(crate) fn add(&mut self, to: SocketAddr, packets: Vec<(Time, Vec<u8>)>) {
        for (at, packet) in packets {
            match self.waiting.len() < FAREWELLS_MAX {
                true => self.waiting.push_back((at, to, packet)),
                false => self.left_out += 1,
            }
        }
    }

    /// Sends the packets that are due.
    pub(crate) fn drain(&mut self, now: Time, mut send: impl FnMut(SocketAddr, &[u8])) {
        self.waiting.retain(|(at, to, packet)| {
            let is_due = *at <= now;
            if is_due {
                send(*to, packet);
            }
            !is_due
        });
    }
}
