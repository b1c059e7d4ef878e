//! A kind is in one place.

use throng_schema::Replicate;

#[derive(Default, Replicate)]
struct Rope {
    #[replicate(position(step = 0.01))]
    begin: [f32; 3],
    #[replicate(position(step = 0.01))]
    end: [f32; 3],
}

fn main() {}
