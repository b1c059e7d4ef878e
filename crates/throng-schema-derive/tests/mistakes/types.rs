//! Types that the tokens show not to suit.

use throng_schema::Replicate;

#[derive(Default, Replicate)]
struct Types {
    #[replicate(position(step = 0.01))]
    flat: [f32; 2],
    #[replicate(fixed(min = 0, max = 1, step = 0.1))]
    whole: u8,
    #[replicate(angle(bits = 9))]
    optional: (f32, f32),
    #[replicate(unit_vector(bits = 9))]
    scalar: f32,
    #[replicate(quaternion(bits = 9))]
    three: [f32; 3],
    #[replicate(integer)]
    real: f32,
    #[replicate(bool)]
    number: u8,
    #[replicate(enumeration)]
    code: u8,
    #[replicate(text(max_bytes = 9))]
    list: Vec<u8>,
    #[replicate(bytes(max_bytes = 9))]
    array: [u8; 9],
    #[replicate(object)]
    handle: u32,
}

fn main() {}
