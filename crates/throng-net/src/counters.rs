use std::ops::AddAssign;

macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: u64,)*
        }

        impl $name {
            /// Every counter with its stable name, in the order of declaration.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($field), self.$field),)*].into_iter()
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: $name) {
                $(self.$field = self.$field.wrapping_add(other.$field);)*
            }
        }
    };
}

counters! {
    /// Counters of a driver since it was created. Sums over drivers are made with `+=`.
    DriverCounters {
        /// Datagrams handed over.
        sent_datagrams,
        /// Payload bytes handed over.
        sent_bytes,
        /// System calls made to send, refused ones included.
        send_calls,
        /// Datagrams delivered to the sink.
        received_datagrams,
        /// Payload bytes delivered to the sink.
        received_bytes,
        /// System calls made to receive, those that found nothing included.
        receive_calls,
        /// Nanoseconds in those calls. Two readings of the clock for each call, about 50 ns.
        receive_ns,
        /// Calls to `receive` that stopped at the driver's limit with more waiting.
        receive_limited,
        /// Received datagrams dropped because they were longer than the receive buffer.
        truncated,
        /// Received datagrams dropped because their sender's port is 0: they cannot be answered.
        unanswerable,
        /// Datagrams dropped because the driver or the kernel was full.
        send_dropped,
        /// Transmits whose datagrams went out one by one because the kernel refused segmentation offload.
        gso_fallbacks,
        /// Reports that no socket listens at the peer's port. A hint, not a proof: it can be forged.
        refused,
        /// Sends refused: the datagram is longer than the path allows.
        too_large,
        /// Sends refused: bad address or wrong peer.
        bad_destination,
        /// Sends refused: no route.
        unreachable,
        /// Sends refused: firewall.
        not_permitted,
        /// Sends and receives that failed in another way.
        socket_errors,
    }
}

counters! {
    /// Counters of a conditioned path.
    ///
    /// `pushed + duplicated` = `delivered` + `lost` + `lost_in_burst` + `dropped_by_rate` + `dropped_by_mtu` +
    /// `dropped_by_memory` + those still under way.
    ConditionCounters {
        /// Datagrams given to the path.
        pushed,
        /// Datagrams that came out, copies included.
        delivered,
        /// Lost in the good state.
        lost,
        /// Lost in the bad state of the burst model.
        lost_in_burst,
        /// Copies made.
        duplicated,
        /// Held back so that later datagrams overtake.
        reordered,
        /// Dropped at the tail of the full bottleneck queue.
        dropped_by_rate,
        /// Dropped because they are longer than the path carries.
        dropped_by_mtu,
        /// Dropped because the conditioner's memory limit was reached. Not a property of the path: raise the limit
        /// when a run shows any.
        dropped_by_memory,
        /// Datagrams of peers beyond the limit of separate paths; they shared one.
        shared_overflow,
    }
}

impl DriverCounters {
    pub(crate) fn count_received(&mut self, bytes: usize) {
        self.received_datagrams += 1;
        self.received_bytes += bytes as u64;
    }

    pub(crate) fn count_sent(&mut self, datagrams: usize, bytes: usize) {
        self.sent_datagrams += datagrams as u64;
        self.sent_bytes += bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_add_up_and_have_names() {
        let mut total = DriverCounters { sent_datagrams: 2, refused: 1, ..Default::default() };
        total += DriverCounters { sent_datagrams: 3, ..Default::default() };
        let named: Vec<_> = total.entries().filter(|(_, value)| *value > 0).collect();
        assert_eq!(named, [("sent_datagrams", 5), ("refused", 1)]);
    }
}
