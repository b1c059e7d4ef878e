//! Only plain structs with named fields have a layout, and only plain enums have codes.

use throng_schema::{Replicate, ReplicateEnum};

#[derive(Default, Replicate)]
struct Tuple(f32);

#[derive(Default, Replicate)]
struct Generic<T> {
    #[replicate(bool)]
    value: T,
}

#[derive(Default, Replicate)]
enum Choice {
    #[default]
    One,
}

#[derive(Replicate)]
union Either {
    one: u32,
    two: f32,
}

#[derive(Default, Replicate)]
#[replicate(name = "", rename = "x")]
struct Named {}

#[derive(Clone, Copy, ReplicateEnum)]
enum Shape {
    Point,
    Circle(u8),
    Box { size: u8 },
}

#[derive(Clone, Copy, ReplicateEnum)]
enum Nothing {}

#[derive(Clone, Copy, ReplicateEnum)]
struct Record {}

fn main() {}
