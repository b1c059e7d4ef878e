//! Writing and reading of bits, a thousand fields of 10 bits at a time. See docs/benchmarking.md.
#![allow(missing_docs)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use throng_wire::{BitReader, BitWriter};

const FIELDS: u64 = 1_000;
const WIDTH_BITS: u32 = 10;

fn bits(c: &mut Criterion) {
    let mut group = c.benchmark_group("bits");
    group.throughput(Throughput::Elements(FIELDS));
    let mut bytes = Vec::new();
    group.bench_function("write", |b| {
        b.iter(|| {
            bytes.clear();
            let mut w = BitWriter::new(black_box(&mut bytes));
            for field in 0..FIELDS {
                w.write(black_box(field), WIDTH_BITS);
            }
            w.finish();
        })
    });
    group.bench_function("read", |b| {
        b.iter(|| {
            let mut r = BitReader::new(black_box(&bytes));
            (0..FIELDS).map(|_| r.read(WIDTH_BITS).expect("just written")).sum::<u64>()
        })
    });
    group.bench_function("write_varint", |b| {
        b.iter(|| {
            bytes.clear();
            let mut w = BitWriter::new(black_box(&mut bytes));
            for field in 0..FIELDS {
                w.write_varint(black_box(field));
            }
            w.finish();
        })
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    targets = bits
}
criterion_main!(benches);
