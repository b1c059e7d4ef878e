//! The fate of packets under way: their pieces have arrived, are lost, or have been overtaken.

use throng_wire::Tick;

use super::{Connection, FETCH_LEAST, Resend, fetch};
use crate::frame::Frame;
use crate::piece::Piece;
use crate::subscription::Stage;

impl Connection {
    pub(crate) fn delivered(&mut self, sequence: u64) {
        self.own.delivered(sequence);
        let (subscriptions, standings, free) = (&mut self.subscriptions, &mut self.standings, &mut self.free);
        let Some(place) = self.records.find(sequence) else { return };
        drop(self.records.take_shared(place));
        if self.records.count_at(place) >= FETCH_LEAST {
            fetch((subscriptions, standings), self.records.pieces_at(place).map(|piece| piece.subscription));
        }
        self.records.settle(place, |piece| {
            let subscription = &mut subscriptions[usize::from(piece.subscription)];
            if piece.frame.is_none() {
                if subscription.stage == Stage::Closing && subscription.opened == piece.opened {
                    subscription.stage = Stage::Free;
                    free.push(piece.subscription);
                }
            } else if subscription.is_incarnation(piece.opened) {
                if piece.named {
                    subscription.announce();
                }
                standings.settle(subscription, piece.parity);
            }
        });
    }

    pub(crate) fn lost(&mut self, sequence: u64, now: Tick, mut is_superseded: impl FnMut(u32, &Frame, usize) -> bool) {
        self.own.lost(sequence);
        let Some(place) = self.records.find(sequence) else { return };
        if let Some(shared) = self.records.take_shared(place) {
            self.lose_shared(&shared, now, &mut is_superseded);
        }
        let (subscriptions, closes, resends) = (&mut self.subscriptions, &mut self.closes, &mut self.resends);
        let (standings, counters, ticks) = (&mut self.standings, &mut self.counters, self.ticks);
        self.records.settle(place, |piece| {
            let subscription = &mut subscriptions[usize::from(piece.subscription)];
            if piece.frame.is_none() {
                if subscription.stage == Stage::Closing && subscription.opened == piece.opened {
                    closes.push_back(piece.subscription);
                }
                return;
            }
            if !subscription.is_incarnation(piece.opened) {
                return;
            }
            if let Some(since) = piece.is_all_since(subscription.stage, standings.of(subscription).since) {
                // As if it had not been sent: the next frame, which others are given too, says it all, and newer.
                standings.settle(subscription, piece.parity);
                standings.of_mut(subscription).since = since;
                let again_at = ticks.from(since.after(u32::from(subscription.interval_ticks)));
                standings.set_due_at(subscription, standings.due_at(subscription).min(again_at));
                counters.frames_taken_back += 1;
                return;
            }
            if !is_overtaken(&piece, subscription.channel, &mut is_superseded) {
                // A lost short frame waits as if it had not been sent. Lost segments of a long one wait for shares like
                // the rest of it.
                let is_short = piece.frame.as_ref().is_some_and(|frame| frame.segments.len() == 1);
                let basis = standings.of(subscription).flight.oldest_basis().filter(|_| is_short);
                let waits_since = basis.map_or(now, |basis| basis.until(now));
                resends.push(Resend { subscription: piece.subscription, piece: Some(piece), waits_since });
                return;
            }
            standings.settle(subscription, piece.parity);
            counters.superseded_segments += 1;
        });
    }

    /// Forgets what was lost and has been overtaken meanwhile: what was true at the loss may be said again since.
    pub(crate) fn review_resends(&mut self, mut is_superseded: impl FnMut(u32, &Frame, usize) -> bool) {
        let (subscriptions, standings, counters) = (&mut self.subscriptions, &mut self.standings, &mut self.counters);
        self.resends.retain(|resend| {
            let Some(piece) = &resend.piece else { return false };
            let subscription = &mut subscriptions[usize::from(piece.subscription)];
            if !subscription.is_incarnation(piece.opened) {
                return false;
            }
            let stays = !is_overtaken(piece, subscription.channel, &mut is_superseded);
            if !stays {
                standings.settle(subscription, piece.parity);
                counters.superseded_segments += 1;
            }
            stays
        });
    }
}

/// Whether later frames of the channel say all that a piece said. Asked once per segment until the answer is yes.
fn is_overtaken(piece: &Piece, channel: u32, is_superseded: &mut impl FnMut(u32, &Frame, usize) -> bool) -> bool {
    let Some(frame) = &piece.frame else { return false };
    let segment = &frame.segments[piece.segment as usize];
    if !segment.is_superseded() && is_superseded(channel, frame, piece.segment as usize) {
        segment.mark_superseded();
    }
    segment.is_superseded()
}
