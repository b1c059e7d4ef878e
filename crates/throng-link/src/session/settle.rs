//! The effect of a packet's verdict on the rest of the session.

use throng_wire::Time;

use super::flight::{Delivery, Sent, Settle};
use super::inputs::InputSender;
use super::lane::{Lanes, PieceRun};
use super::pace::Pacer;
use super::path_size::{PathSize, SizeVerdict};
use super::received::Received;
use super::room::Room;
use super::statistics::Counters;

/// Everything of a session that verdicts concern.
pub(super) struct Concerned<'a> {
    pub(super) received: &'a mut Received,
    pub(super) inputs: &'a mut InputSender,
    pub(super) lanes: &'a mut Lanes,
    pub(super) room: &'a mut Room,
    pub(super) pacer: &'a mut Pacer,
    pub(super) path_size: &'a mut PathSize,
    pub(super) now: Time,
    pub(super) newest_sent: u64,
    pub(super) counters: &'a mut Counters,
}

impl Concerned<'_> {
    fn on_delivered(&mut self, sent: &Sent, runs: impl Iterator<Item = PieceRun>) {
        self.counters.packets_delivered += 1;
        self.path_size.on_delivered(sent);
        if sent.is_eliciting && !sent.is_size_probe {
            self.pacer.on_delivered(sent.stamp, usize::from(sent.bytes));
        }
        if let Some(told) = sent.told {
            self.received.confirm(sent.sequence, told);
        }
        if let Some(number) = sent.newest_input {
            self.inputs.on_delivered(number);
        }
        if sent.says_room {
            self.room.on_delivered(sent.sequence);
        }
        for run in runs {
            self.lanes.on_delivered(run);
        }
    }

    fn on_lost(&mut self, sent: &Sent, runs: impl Iterator<Item = PieceRun>) {
        self.counters.packets_lost += 1;
        // A session that does not wait for an acknowledgement learns nothing from its absence.
        if sent.is_eliciting {
            match sent.is_size_probe {
                // Its length may be the reason.
                true => self.counters.size_probes_lost += 1,
                false => self.pacer.on_lost(sent.stamp),
            }
            match self.path_size.on_lost(sent, self.newest_sent) {
                SizeVerdict::Nothing => {}
                SizeVerdict::Doubted => self.pacer.on_path_doubted(self.now),
                SizeVerdict::Shrunk => {
                    self.counters.path_shrinks += 1;
                    self.pacer.on_path_shrunk(self.now);
                }
            }
        }
        if let Some(number) = sent.newest_input {
            self.inputs.on_lost(number);
        }
        if sent.says_room {
            self.room.on_lost(sent.sequence);
        }
        for run in runs {
            self.counters.message_bytes_resent += self.lanes.on_lost(run) as u64;
        }
    }
}

impl Settle for Concerned<'_> {
    fn settle(&mut self, sent: &Sent, runs: impl Iterator<Item = PieceRun>, delivery: Delivery) {
        match delivery {
            Delivery::Delivered => self.on_delivered(sent, runs),
            Delivery::Lost => self.on_lost(sent, runs),
            Delivery::Discarded => {}
        }
    }
}
