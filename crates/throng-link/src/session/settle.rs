//! What the verdict on a packet means for the rest of the session.

use super::flight::{Delivery, Sent, Settle};
use super::inputs::InputSender;
use super::lane::{Lanes, PieceRun};
use super::pace::Pacer;
use super::received::Received;
use super::statistics::Counters;

/// Everything of a session that verdicts concern.
pub(super) struct Concerned<'a> {
    pub(super) received: &'a mut Received,
    pub(super) inputs: &'a mut InputSender,
    pub(super) lanes: &'a mut Lanes,
    pub(super) pacer: &'a mut Pacer,
    pub(super) counters: &'a mut Counters,
}

impl Concerned<'_> {
    fn on_delivered(&mut self, sent: &Sent, runs: impl Iterator<Item = PieceRun>) {
        self.counters.packets_delivered += 1;
        if sent.is_eliciting {
            self.pacer.on_delivered(sent.stamp, usize::from(sent.bytes));
        }
        if let Some(told) = sent.told {
            self.received.confirm(sent.sequence, told);
        }
        if let Some(number) = sent.newest_input {
            self.inputs.on_delivered(number);
        }
        for run in runs {
            self.lanes.on_delivered(run);
        }
    }

    fn on_lost(&mut self, sent: &Sent, runs: impl Iterator<Item = PieceRun>) {
        self.counters.packets_lost += 1;
        // Whoever does not wait for an acknowledgement learns nothing from its absence.
        if sent.is_eliciting {
            self.pacer.on_lost(sent.stamp);
        }
        if let Some(number) = sent.newest_input {
            self.inputs.on_lost(number);
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
