//! Parameters that are unknown, missing, or out of range.

use throng_schema::Replicate;

const LIMIT: f64 = 5.0;

#[derive(Default, Replicate)]
struct Parameters {
    #[replicate(fixed(min = 1.0, max = 1.0, step = 0.1))]
    empty_range: f32,
    #[replicate(fixed(min = 0.0, max = 1.0, step = 0))]
    no_step: f32,
    #[replicate(fixed(min = 0.0, max = 1.0, step = 2.0))]
    large_step: f32,
    #[replicate(fixed(min = 0.0, max = 1000.0, step = 0.00001))]
    fine_step: f32,
    #[replicate(fixed(min = 0.0, max = 1.0))]
    missing_step: f32,
    #[replicate(fixed(min = 0.0, max = 1.0, step = "small"))]
    text_step: f32,
    #[replicate(fixed(min = 0.0, max = LIMIT, step = 0.1))]
    named_constant: f32,
    #[replicate(fixed(min = 0.0, max = 1.0, steps = 10))]
    unknown_parameter: f32,
    #[replicate(fixed(min = 0.0, max = 1.0, step = 0.1, step = 0.2))]
    repeated_parameter: f32,
    #[replicate(position(step = -0.01))]
    negative_step: [f32; 3],
    #[replicate(angle(bits = 23))]
    many_bits: f32,
    #[replicate(unit_vector(bits = 1))]
    few_bits: [f32; 3],
    #[replicate(quaternion(bits = 10.5))]
    broken_bits: [f32; 4],
    #[replicate(angle = 9)]
    no_parentheses: f32,
    #[replicate(integer(min = 5, max = 4))]
    backwards: i32,
    #[replicate(integer(min = 0, max = 300))]
    beyond_the_type: u8,
    #[replicate(integer)]
    size_of_the_machine: usize,
    #[replicate(text(max_bytes = 0))]
    no_text: String,
    #[replicate(bytes(max_bytes = 5_000_000))]
    many_bytes: Vec<u8>,
}

fn main() {}
