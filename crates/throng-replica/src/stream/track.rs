//! Subscriptions whose frames may get lost: what has arrived, and what is made of it.
//!
//! ```text
//! log       ----a----------b----------c----------d--->      changes
//! frame 1        (a, b]                                      sent
//! frame 2        (a,            c]                           sent before anything was heard of frame 1
//!                                                            frame 1 arrived: base is b
//! frame 3                  (b,               d]
//! ```
//!
//! Each frame holds everything since the newest one that is known to have arrived: the *base*. So any of them may be
//! lost, or come late and be thrown away for a newer one, and the reader's copy is always one that the channel once was
//! (the scheme of Quake III's snapshots, Carmack 1999, with a tick for a snapshot). A frame that is lost is not sent
//! again: the next one holds all of it. Only when the *last* one is lost, and nothing has changed since, does the
//! subscription go back to its base and have another turn.

use throng_wire::Tick;

use super::{Stage, Stream};
use crate::connection::SubscriptionId;
use crate::hub::{ChannelIndex, ChannelState, Hub, Outgoing, Turns};
use throng_wire::ConnectionId;

/// The state of one subscription's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Track {
    /// Its frames do not get lost.
    None,
    /// Sent data has arrived.
    Settled,
    /// The reader has everything up to `base`; what was sent after it, last at `sent`, may have got lost.
    Open { base: Tick, sent: Tick },
}

/// By number of the subscription, as far as there are any.
#[derive(Debug, Default)]
pub(super) struct Tracks(Vec<Track>);

impl Tracks {
    /// From where on the next frame has to tell, for a subscription that was sent everything up to `since`.
    pub(super) fn base(&self, number: usize, since: Tick) -> Tick {
        match self.0.get(number) {
            Some(&Track::Open { base, .. }) => base,
            _ => since,
        }
    }

    /// A frame of `tick` is sent; before, everything up to `since` was.
    pub(super) fn sent(&mut self, number: usize, since: Tick, tick: Tick) {
        let base = self.base(number, since);
        if let Some(track) = self.0.get_mut(number).filter(|track| **track != Track::None) {
            *track = Track::Open { base, sent: tick };
        }
    }

    /// The number belongs to another subscription now.
    pub(super) fn forget(&mut self, number: usize) {
        if let Some(track) = self.0.get_mut(number) {
            *track = Track::None;
        }
    }

    fn begin(&mut self, number: usize) {
        if self.0.len() <= number {
            self.0.resize(number + 1, Track::None);
        }
        self.0[number] = Track::Settled;
    }

    fn delivered(&mut self, number: usize, tick: Tick) {
        let Some(track) = self.0.get_mut(number) else { return };
        if let Track::Open { base, sent } = *track {
            *track = match tick == sent {
                true => Track::Settled,
                false => Track::Open { base: base.newest(tick), sent },
            };
        }
    }

    /// Where the subscription has to go back to, if the frame that is lost was its last one.
    fn lost(&mut self, number: usize, tick: Tick) -> Option<Tick> {
        let track = self.0.get_mut(number)?;
        match *track {
            Track::Open { base, sent } if sent == tick => {
                *track = Track::Settled;
                Some(base)
            }
            _ => None,
        }
    }
}

impl Stream {
    /// From now on the frames of a subscription may be lost: each holds all changes since the newest one that
    /// [`Stream::delivered`] has reported.
    pub fn keep_track(&mut self, id: SubscriptionId) {
        self.tracks.begin(usize::from(id.0));
    }

    /// The reader has the frame of `tick`, or will have it before it gets any later one.
    pub fn delivered(&mut self, id: SubscriptionId, tick: Tick) {
        self.tracks.delivered(usize::from(id.0), tick);
    }

    /// A frame that was just handed out was not sent after all: it is made again at the next turn.
    pub fn put_back<S: ChannelState>(&mut self, id: SubscriptionId, tick: Tick, outgoing: Outgoing<'_, S>) {
        let Some(channel) = self.channel(id) else { return };
        self.go_back(id, tick, outgoing.channels[channel as usize].turns, outgoing.now);
    }

    fn go_back(&mut self, id: SubscriptionId, tick: Tick, turns: Turns, now: Tick) {
        let number = usize::from(id.0);
        let Some(base) = self.tracks.lost(number, tick) else { return };
        let entry = &mut self.entries[number];
        if matches!(entry.stage, Stage::Open | Stage::Asleep) {
            entry.stage = Stage::Open;
            entry.since = base;
            let due_at = entry.next_turn(now, turns);
            self.set_due(number, due_at);
        }
    }
}

impl<S: ChannelState> Hub<S, Stream> {
    /// The frame of `tick` will not arrive. If nothing was sent after it, its changes are sent again at the
    /// subscription's next turn.
    pub fn stream_lost(&mut self, id: ConnectionId, subscription: SubscriptionId, tick: Tick) {
        let Some(channel) = self.connection(id).and_then(|stream| stream.channel(subscription)) else { return };
        let (turns, now) = (self.turns(ChannelIndex(channel)), self.now());
        if let Some(stream) = self.connection_mut(id) {
            stream.go_back(subscription, tick, turns, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, Since, Variant};
    use crate::hub::Inline;
    use crate::key::ChannelKey;
    use crate::limits::HubLimits;
    use crate::stream::{StreamStart, StreamSubscription};

    /// The tick of the last change; a frame is the ticks since when it tells.
    struct Log(Tick);

    impl ChannelState for Log {
        type Context = ();

        fn last_change(&self) -> Tick {
            self.0
        }

        fn horizon(&self) -> Tick {
            Tick(0)
        }

        fn retention_ticks(&self) -> u32 {
            u32::MAX
        }

        fn is_empty(&self) -> bool {
            false
        }

        fn encode(&self, (): &(), since: Since, _now: Tick, frame: &mut Frame) {
            let since = if let Since::Tick(tick) = since { tick.short().0 } else { 0 };
            frame.bytes.extend_from_slice(&since.to_le_bytes());
            frame.push_segment(0, 0, 1);
        }

        fn is_superseded(&self, (): &(), _frame: &Frame, _segment: usize) -> bool {
            false
        }
    }

    struct Scene {
        hub: Hub<Log, Stream>,
        channel: ChannelIndex,
        reader: ConnectionId,
        subscription: SubscriptionId,
    }

    /// One subscriber with a turn every 10 ticks that keeps track from the start on.
    fn scene() -> Scene {
        let mut hub: Hub<Log, Stream> = Hub::new(HubLimits::default(), Tick(0));
        let channel = hub.channel_or_insert(ChannelKey::Custom(7), || Log(Tick(0))).expect("there is room");
        let reader = hub.connect().expect("there is room");
        let wanted = StreamSubscription {
            interval_ticks: 10,
            anchor: Tick(0),
            start: StreamStart::Changes,
            variant: Variant(0),
            skips: None,
        };
        let subscription = hub.subscribe(reader, channel, wanted).expect("there is room");
        hub.connection_mut(reader).expect("it is there").keep_track(subscription);
        Scene { hub, channel, reader, subscription }
    }

    impl Scene {
        fn write(&mut self) {
            *self.hub.state_mut(self.channel) = Log(self.hub.now().after(1));
        }

        /// Goes on by this many ticks; the frames that came: tick and since when they tell.
        fn run(&mut self, ticks: u32) -> Vec<(u64, u32)> {
            let mut got = Vec::new();
            for _ in 0..ticks {
                let tick = self.hub.now().after(1);
                self.hub.plan(tick);
                self.hub.encode(&(), &Inline);
                let (outgoing, slots) = self.hub.writers();
                let mut stream = slots[self.reader.index as usize].writer().expect("it is connected");
                stream.drain(outgoing, |_, frame, _| {
                    let since = frame.bytes[..4].try_into().expect("four bytes");
                    got.push((tick.0, u32::from_le_bytes(since)));
                });
            }
            got
        }

        fn delivered(&mut self, tick: u64) {
            let stream = self.hub.connection_mut(self.reader).expect("it is connected");
            stream.delivered(self.subscription, Tick(tick));
        }

        fn lost(&mut self, tick: u64) {
            self.hub.stream_lost(self.reader, self.subscription, Tick(tick));
        }
    }

    #[test]
    fn a_frame_tells_everything_since_the_newest_that_has_arrived() {
        let mut scene = scene();
        scene.write();
        assert_eq!(scene.run(10), [(10, 0)]);
        scene.write();
        assert_eq!(scene.run(10), [(20, 0)], "nothing is known of the first");
        scene.delivered(10);
        scene.write();
        assert_eq!(scene.run(10), [(30, 10)]);
        scene.delivered(30);
        scene.delivered(20);
        scene.write();
        assert_eq!(scene.run(10), [(40, 30)], "what arrives late does not count back");
    }

    #[test]
    fn only_the_last_frame_is_made_again() {
        let mut scene = scene();
        scene.write();
        assert_eq!(scene.run(10), [(10, 0)]);
        scene.write();
        assert_eq!(scene.run(10), [(20, 0)]);
        scene.lost(10);
        assert_eq!(scene.run(20), [], "the second tells all of it");
        scene.lost(20);
        assert_eq!(scene.run(20), [(50, 0)], "though nothing has changed");
        scene.delivered(50);
        scene.lost(50);
        assert_eq!(scene.run(40), [], "a frame has one fate");
    }

    #[test]
    fn what_was_quiet_since_counts_as_known() {
        let mut scene = scene();
        scene.write();
        assert_eq!(scene.run(50), [(10, 0)]);
        scene.delivered(10);
        scene.write();
        assert_eq!(scene.run(10), [(60, 50)], "as for everybody who was there");
    }

    #[test]
    fn a_number_that_is_used_again_has_no_past() {
        let mut scene = scene();
        scene.write();
        assert_eq!(scene.run(10), [(10, 0)]);
        scene.hub.unsubscribe(scene.reader, scene.subscription);
        let wanted = StreamSubscription {
            interval_ticks: 10,
            anchor: Tick(0),
            start: StreamStart::Changes,
            variant: Variant(0),
            skips: None,
        };
        let again = scene.hub.subscribe(scene.reader, scene.channel, wanted).expect("there is room");
        assert_eq!(again, scene.subscription);
        scene.lost(10);
        assert_eq!(scene.run(20), []);
    }
}
