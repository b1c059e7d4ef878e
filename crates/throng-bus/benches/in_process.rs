//! The bus in one process, against the call of a closure with the same message. `message` is handing over alone; `update`
//! also copies 200 bytes into the state of the message's subject, which is the least that a reader does with it.
//!
//!     cargo bench -p throng-bus --bench in_process

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rustc_hash::FxHashMap;
use throng_bus::{Bus, Event, Limits, LocalBus, LocalHub, MemberId, Pattern, Subject, SubscriptionId};
use throng_wire::Time;

const MESSAGES: u64 = 256;
const PAYLOAD_BYTES: usize = 200;
const NOW: Time = Time(0);

struct Reader {
    states: FxHashMap<Subject, [u8; PAYLOAD_BYTES]>,
    received: u64,
    copies: bool,
}

impl Reader {
    #[inline(never)]
    fn handle(&mut self, subject: &Subject, payload: &Bytes) {
        self.received += 1;
        if self.copies
            && let Some(state) = self.states.get_mut(subject)
        {
            state.copy_from_slice(payload);
        }
    }
}

fn members(pattern: &str) -> (LocalBus, LocalBus) {
    let hub = LocalHub::new();
    let [writer, mut reader] = [1, 2].map(|id| hub.join(MemberId(id), Limits::default()));
    reader.subscribe(NOW, SubscriptionId(1), &Pattern::new(pattern).expect("a pattern")).expect("there is room");
    (writer, reader)
}

fn compare(criterion: &mut Criterion) {
    let subjects: Vec<Subject> =
        (0..64).map(|number| Subject::new(&format!("channel.{number}")).expect("a name")).collect();
    let payload = Bytes::from(vec![7; PAYLOAD_BYTES]);
    for (name, copies) in [("message", false), ("update", true)] {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(MESSAGES));
        let states = subjects.iter().map(|subject| (subject.clone(), [0; PAYLOAD_BYTES])).collect();
        let mut state = Reader { states, received: 0, copies };
        group.bench_function("closure", |bencher| {
            let mut call = |subject: &Subject, payload: &Bytes| state.handle(subject, payload);
            bencher.iter(|| {
                for number in 0..MESSAGES as usize {
                    call(black_box(&subjects[number % 64]), black_box(&payload));
                }
            });
        });
        let (mut writer, mut reader) = members("channel.*");
        group.bench_function("bus", |bencher| {
            bencher.iter(|| {
                for number in 0..MESSAGES as usize {
                    writer.publish(NOW, &subjects[number % 64], payload.clone()).expect("there is room");
                }
                while let Some(event) = reader.poll_event(NOW) {
                    if let Event::Message(message) = event {
                        state.handle(&message.subject, &message.payload);
                    }
                }
            });
        });
        black_box(state.received);
        assert_eq!(reader.counters().dropped_slow, 0, "everything found room");
        group.finish();
    }
}

criterion_group!(benches, compare);
criterion_main!(benches);
