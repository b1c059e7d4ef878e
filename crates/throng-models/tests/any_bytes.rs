//! The decoder of the older models accepts or refuses any bytes, without a panic.

use throng::replica::ClientOptions;
use throng::{Decoder, Tick};
use throng_models::RecordDecoder;
use throng_seeds::for_seeds;

#[test]
fn any_bytes_are_taken_or_refused_within_the_limit_of_objects() {
    let (mut taken, mut refused) = (0, 0);
    let schema = throng_testkit::schema();
    let options = ClientOptions { objects: 8, ..ClientOptions::default() };
    for_seeds(300, |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut decoder = RecordDecoder::open(&schema, &[], options)?;
        for _ in 0..40 {
            let mut bytes: Vec<u8> = (0..rng.usize(..60)).map(|_| rng.u8(..)).collect();
            if let Some(first) = bytes.first_mut() {
                // Few indices, so that records meet objects that are there; often an opening of one of the kinds.
                *first = rng.u8(..12);
            }
            match decoder.apply(Tick(rng.u64(..50)), &bytes) {
                Ok(()) => taken += 1,
                Err(_) => refused += 1,
            }
            while decoder.poll_event().is_some() {}
            if decoder.count() > 8 || decoder.views().count() != decoder.count() {
                return Err(format!("{} objects are counted", decoder.count()));
            }
        }
        Ok(())
    });
    assert!(
        taken > 100 && refused > 100 || throng_seeds::is_partial(),
        "{taken} taken, {refused} refused: the bytes test nothing"
    );
}
