//! The characters of a host in a snapshot.
//!
//! ```text
//! the game's bytes   [length of a state: u32][client id: u64, state]...        little endian
//! ```

use anyhow::{Result, bail};
use throng::{Replication, Snapshot};
use throng_crowd::world::{CharacterId, STATE_BYTES};

use super::Host;

const CHARACTER_BYTES: usize = 8 + STATE_BYTES;

/// Characters of absent players at most. Those who leave after that are forgotten.
const ABSENT_MAX: usize = 100_000;

impl<R: Replication> Host<R> {
    /// From now on, the character of a player who leaves waits for its return.
    pub(crate) fn keep_the_absent(&mut self) {
        self.keeps_the_absent = true;
    }

    /// The player of this character leaves.
    pub(super) fn keep(&mut self, client_id: u64, character: CharacterId) {
        let has_room = self.saved.len() < ABSENT_MAX;
        if let Some(state) = self.world.state_bytes(character).filter(|_| self.keeps_the_absent && has_room) {
            self.saved.insert(client_id, state);
        }
    }

    /// Everything that a server needs to go on with the characters of its players, absent ones too.
    pub(crate) fn snapshot(&self) -> Vec<u8> {
        let playing = self.players.iter().flatten().filter_map(|player| {
            let client_id = self.server.client_id(player.connection);
            client_id.zip(self.world.state_bytes(player.character))
        });
        let waiting = self.saved.iter().map(|(client_id, state)| (*client_id, *state));
        let mut game = (STATE_BYTES as u32).to_le_bytes().to_vec();
        // Of two with one id, the last one counts.
        for (client_id, state) in waiting.chain(playing) {
            game.extend_from_slice(&client_id.to_le_bytes());
            game.extend_from_slice(&state);
        }
        self.server.snapshot(&game)
    }

    /// The characters of a snapshot wait for their players. Returns how many there are.
    ///
    /// # Errors
    /// Characters of the program that has written it have another length.
    pub(crate) fn go_on_from(&mut self, snapshot: &Snapshot) -> Result<usize> {
        let (length, characters) = snapshot.game().split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
        let (characters, rest) = characters.as_chunks::<CHARACTER_BYTES>();
        let length = u32::from_le_bytes(*length) as usize;
        if length != STATE_BYTES || !rest.is_empty() {
            bail!("its characters have {length} bytes each, and those of this program {STATE_BYTES}");
        }
        let saved = characters.iter().filter_map(|saved| {
            let (client_id, state) = (saved.first_chunk::<8>()?, saved.last_chunk::<STATE_BYTES>()?);
            Some((u64::from_le_bytes(*client_id), *state))
        });
        self.saved = saved.collect();
        Ok(self.saved.len())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use throng::net::{Condition, MemoryNetwork};
    use throng::{Channels, Client, ClientOptions, Key};
    use throng_crowd::kinds::{self, Character};
    use throng_crowd::scenario::{Overrides, Scenario};
    use throng_crowd::world::BotInput;
    use throng_machine::clock;

    use super::*;
    use crate::cut::Cut;
    use crate::host::{Door, Socket, Way, token_issuer};

    const PLAYERS: u32 = 3;

    fn scenario(players: u32) -> Scenario {
        Scenario::resolve("crowd", &Overrides { players: Some(players), ..Overrides::default() }).unwrap()
    }

    /// A server to which clients with these ids have connected, in this order. Nobody moves.
    fn played(from: Option<&[u8]>, client_ids: &[u64]) -> (Host, Vec<Client>) {
        played_after(from, client_ids, |_| ())
    }

    /// The same, with something that happens before the first one comes.
    fn played_after(from: Option<&[u8]>, client_ids: &[u64], before: impl FnOnce(&mut Host)) -> (Host, Vec<Client>) {
        let network = MemoryNetwork::new(Condition::NONE, 1).unwrap();
        let (scenario, key) = (scenario(PLAYERS), Key::new([7; 32]));
        let address: SocketAddr = "10.0.0.1:1".parse().unwrap();
        let socket = Socket { way: Way::Bus(Box::new(network.endpoint(address).unwrap())), cut: Cut::default() };
        let door = Door { socket, public: None, key: key.clone() };
        let mut host = Host::with_model(&scenario, (0, throng::Tick(0)), door, Channels::new).unwrap();
        if let Some(bytes) = from {
            let snapshot = Snapshot::read(bytes.to_vec(), host.server().schema()).unwrap();
            assert_eq!(host.go_on_from(&snapshot).unwrap(), PLAYERS as usize);
        }
        before(&mut host);
        let mut clients: Vec<Client> = Vec::new();
        for &client_id in client_ids {
            let own: SocketAddr = ([10, 1, 0, client_id as u8], 1).into();
            let driver = Box::new(network.endpoint(own).unwrap());
            let token = token_issuer(&scenario, &key).issue(client_id, &[address]).unwrap();
            let options = ClientOptions::default();
            clients.push(Client::new(driver, token, kinds::schema(), options, clock::now()).unwrap());
            let until = clock::now().after(Duration::from_secs(20));
            while (host.connected() as usize) < clients.len() {
                assert!(clock::now() < until, "client {client_id} has not connected");
                host.tick();
                clients.iter_mut().for_each(|client| client.update(clock::now()).unwrap());
            }
        }
        (host, clients)
    }

    /// The place of each client's character.
    fn places(host: &Host, client_ids: &[u64]) -> Vec<[f32; 3]> {
        let connection = |id: u64| host.server().connections().find(|it| host.server().client_id(*it) == Some(id));
        let place =
            |id: &u64| host.server().owned_objects::<Character>(connection(*id).unwrap()).next().unwrap().1.position;
        client_ids.iter().map(place).collect()
    }

    #[test]
    fn each_client_has_its_own_character_again_in_whatever_order_they_come_also_after_a_second_restart() {
        let (ids, turned) = ([5, 6, 7], [7, 5, 6]);
        let (first, _clients) = played(None, &ids);
        let wanted = places(&first, &ids);
        assert!(wanted[0] != wanted[1] && wanted[1] != wanted[2] && wanted[0] != wanted[2], "{wanted:?}");
        assert_ne!(places(&played(None, &turned).0, &ids), wanted, "without a snapshot, places go by order");
        // In the second life one comes back alone; the others are still awaited in the third.
        let (second, _clients) = played(Some(&first.snapshot()), &turned[..1]);
        assert_eq!((places(&second, &turned[..1])[0], second.handovers().resumed), (wanted[2], 1));
        let (third, _clients) = played(Some(&second.snapshot()), &turned);
        assert_eq!((places(&third, &ids), third.handovers().resumed), (wanted, 3));
    }

    #[test]
    fn a_character_that_comes_to_a_frozen_world_stands_still() {
        let ids = [5, 6, 7];
        let (mut first, _clients) = played(None, &ids);
        let characters: Vec<CharacterId> = first.world.characters().map(|(character, _)| character).collect();
        let walk = BotInput { forward: true, ..BotInput::default() };
        characters.iter().for_each(|&character| first.world.apply(character, walk));
        (0..30).for_each(|_| first.world.step(|_, _| ()));
        let walking = first.snapshot();
        let speeds = |host: &Host| {
            let connections: Vec<_> = host.server().connections().collect();
            let shown = connections.into_iter().flat_map(|it| host.server().owned_objects::<Character>(it));
            shown.map(|(_, character)| character.velocity.map(f32::abs).into_iter().sum::<f32>()).collect::<Vec<f32>>()
        };
        let (moving, _clients) = played(Some(&walking), &ids);
        assert!(speeds(&moving).iter().any(|speed| *speed > 0.1), "{:?}", speeds(&moving));
        let (frozen, _clients) = played_after(Some(&walking), &ids, Host::freeze);
        assert_eq!(speeds(&frozen), [0.0; 3]);
    }

    #[test]
    fn a_player_who_has_left_is_in_the_next_snapshot_if_the_absent_are_kept() {
        let ids = [5, 6, 7];
        for keeps in [false, true] {
            let (mut host, mut clients) = played(None, &ids);
            let wanted = places(&host, &ids);
            if keeps {
                host.keep_the_absent();
            }
            // It says so until the server has heard it.
            clients[1].close(clock::now(), "bye");
            let until = clock::now().after(Duration::from_secs(20));
            while host.connected() > 2 {
                assert!(clock::now() < until, "nobody has left");
                host.tick();
                clients.iter_mut().for_each(|client| client.update(clock::now()).unwrap());
            }
            let snapshot = Snapshot::read(host.snapshot(), host.server().schema()).unwrap();
            let (_, characters) = snapshot.game().split_at(4);
            let saved = characters.chunks(CHARACTER_BYTES).map(|it| u64::from_le_bytes(*it.first_chunk().unwrap()));
            let mut saved: Vec<u64> = saved.collect();
            saved.sort_unstable();
            assert_eq!(saved, if keeps { vec![5, 6, 7] } else { vec![5, 7] });
            if keeps {
                let (third, _clients) = played(Some(&host.snapshot()), &ids);
                assert_eq!(places(&third, &ids), wanted);
            }
        }
    }

    #[test]
    fn a_snapshot_of_other_characters_is_refused_and_more_than_the_players_wait_as_well() {
        let (mut host, _clients) = played(None, &[5, 6, 7]);
        let of = |game: &[u8]| Snapshot::read(host.server().snapshot(game), host.server().schema()).unwrap();
        let head = (STATE_BYTES as u32).to_le_bytes();
        let wrong: [&[u8]; 4] = [&[], &[9, 9], &[62, 0, 0, 0], &[head[0], 0, 0, 0, 1]];
        let wrong = wrong.map(of);
        let many = of(&[
            &head[..],
            &[1; CHARACTER_BYTES],
            &[2; CHARACTER_BYTES],
            &[3; CHARACTER_BYTES],
            &[4; CHARACTER_BYTES],
        ]
        .concat());
        assert!(wrong.iter().all(|wrong| host.go_on_from(wrong).is_err()));
        assert_eq!(host.go_on_from(&many).unwrap(), 4);
        let again = Snapshot::read(host.snapshot(), host.server().schema()).unwrap();
        // Three play.
        assert_eq!(again.game().len(), 4 + (3 + 4) * CHARACTER_BYTES);
    }
}
