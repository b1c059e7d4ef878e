//! Lists that take their memory before a run begins.

/// An empty list with memory for `count` values like this one. Its pages are written here: else the memory of a run would grow for as
/// long as its lists fill.
pub fn with_room<T: Clone>(count: usize, value: T) -> Vec<T> {
    let mut list = vec![value; count];
    list.clear();
    list
}
