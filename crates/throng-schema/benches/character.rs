//! Nanoseconds per object for the steps on an object's way, for a moving character of nine words in a cell of 10 m.
//!
//! `cargo bench -p throng-schema`

#[path = "../tests/kinds/mod.rs"]
mod kinds;

use kinds::{Character, Mode, Store};
use std::hint::black_box;
use std::time::Instant;
use throng_schema::{Replicate, Space};
use throng_wire::{BitReader, BitWriter};

const OBJECTS: usize = 1_000;
const ROUNDS: usize = 200;
/// The fastest of this many measurements is reported: the others were disturbed.
const REPETITIONS: usize = 15;

fn measure(name: &str, mut work: impl FnMut()) {
    let nanoseconds = (0..REPETITIONS).map(|_| {
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| work());
        start.elapsed().as_nanos() as f64 / (ROUNDS * OBJECTS) as f64
    });
    println!("{name:<10} {:6.1} ns per object", nanoseconds.fold(f64::INFINITY, f64::min));
}

fn main() {
    let kind = Character::kind();
    let cell = Space { origin: [0, 0, 0], bits: [10, 8, 10] };
    let objects: Vec<Character> = (0..OBJECTS).map(|index| moving_character(index as f32 / OBJECTS as f32)).collect();
    let mut stores: Vec<Store> = objects.iter().map(Store::of).collect();
    let mut old = stores.clone();
    old.iter_mut().for_each(|store| store.words[1] ^= 1);
    let mut bytes = Vec::new();

    measure("quantise", || {
        for (object, store) in black_box(&objects).iter().zip(&mut stores) {
            object.quantise(store.values_mut());
        }
    });
    measure("compare", || {
        for (old, new) in black_box(&old).iter().zip(black_box(&stores)) {
            black_box(kind.compare(old.values(), new.values()));
        }
    });
    measure("copy", || {
        for (old, new) in black_box(&mut old).iter_mut().zip(black_box(&stores)) {
            kind.copy(kind.all_mask(), new.values(), old.values_mut());
        }
    });
    measure("encode", || {
        bytes.clear();
        let mut w = BitWriter::new(&mut bytes);
        for store in black_box(&stores) {
            kind.encode(kind.all_mask(), store.values(), &cell, &mut w);
        }
        w.finish();
    });
    measure("decode", || {
        let mut r = BitReader::new(black_box(&bytes));
        for store in &mut old {
            kind.decode(kind.all_mask(), store.values_mut(), &cell, &mut r).expect("just encoded");
        }
    });
    let mut received = objects.clone();
    measure("apply", || {
        for (object, store) in received.iter_mut().zip(black_box(&old)) {
            object.apply(kind.all_mask(), store.values());
        }
        black_box(&mut received);
    });
    println!("{} bits per object", bytes.len() as f64 * 8.0 / OBJECTS as f64);
}

fn moving_character(at: f32) -> Character {
    Character {
        position: [at * 10.0, at * 2.0, 10.0 - at * 10.0],
        velocity: [at * 8.0 - 4.0, 0.0, 4.0 - at * 8.0],
        yaw: at * 20.0,
        pitch: at - 0.5,
        mode: if at < 0.5 { Mode::Walking } else { Mode::Flying },
    }
}
