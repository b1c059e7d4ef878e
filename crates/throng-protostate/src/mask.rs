//! Field masks: which fields of a state a subscriber is sent. Applied while encoding, never to the state.
//!
//! A path is field names, from the outermost message inwards, joined by dots: `actors.location.x`. Through a list or a
//! map it continues with the fields of the elements or values. Where no schema is known, a path is field numbers as
//! they are on the wire, with the `2` of a map entry's value among them: `1.2.11`. Numbers are understood everywhere.

use super::schema::{Kind, Schema};

/// A set of fields. Everything below a named field is included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldMask {
    /// Node 0 is the outermost message.
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    /// Field number, and the node of its own fields; [`WHOLE`] if all of it is included. Sorted by number.
    fields: Vec<(u32, u32)>,
}

const WHOLE: u32 = u32::MAX;

/// Steps of one path.
const STEPS_MAX: usize = 64;

/// Paths of one mask.
const PATHS_MAX: usize = 1_024;

/// Why a mask was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MaskError {
    /// No such field, or a name where the state has no schema.
    #[error("no field {step:?} in the path {path:?}")]
    UnknownField {
        /// The whole path.
        path: String,
        /// The step that leads nowhere.
        step: String,
    },
    /// More paths, or longer ones, than a mask may have.
    #[error("the mask has more than {PATHS_MAX} paths, or one of more than {STEPS_MAX} steps")]
    TooLong,
}

impl MaskError {
    /// The label of this error in metrics.
    pub fn tag(&self) -> &'static str {
        match self {
            MaskError::UnknownField { .. } => "mask_unknown_field",
            MaskError::TooLong => "mask_too_long",
        }
    }
}

impl FieldMask {
    /// The mask of these paths; `None` if there are none, or only empty ones, which means everything. Paths that lead to
    /// no known field show nothing, and do no harm: a game may ask for what another version of it has.
    ///
    /// # Errors
    /// More or longer paths than a mask may have.
    pub fn resolve<P: AsRef<str>>(paths: &[P], schema: Option<&Schema>) -> Result<Option<FieldMask>, MaskError> {
        if paths.len() > PATHS_MAX {
            return Err(MaskError::TooLong);
        }
        let mut mask = FieldMask { nodes: vec![Node::default()] };
        let mut paths = paths.iter().map(AsRef::as_ref).filter(|path: &&str| !path.is_empty()).peekable();
        let is_everything = paths.peek().is_none();
        for path in paths {
            match numbers_of(path, schema) {
                Ok(numbers) => mask.insert(&numbers),
                Err(MaskError::UnknownField { .. }) => {}
                Err(error @ MaskError::TooLong) => return Err(error),
            }
        }
        Ok((!is_everything).then_some(mask))
    }

    fn insert(&mut self, numbers: &[u32]) {
        let mut node = 0;
        for (step, &number) in numbers.iter().enumerate() {
            let is_last = step + 1 == numbers.len();
            let next = self.nodes.len() as u32;
            let fields = &mut self.nodes[node].fields;
            let child = match fields.binary_search_by_key(&number, |&(number, _)| number) {
                Ok(found) if is_last => {
                    fields[found].1 = WHOLE;
                    return;
                }
                Ok(found) => fields[found].1,
                Err(place) => {
                    fields.insert(place, (number, if is_last { WHOLE } else { next }));
                    if is_last {
                        return;
                    }
                    self.nodes.push(Node::default());
                    next
                }
            };
            if child == WHOLE {
                return;
            }
            node = child as usize;
        }
    }

    pub(super) fn root(&self) -> MaskRef<'_> {
        MaskRef { of: Some((self, 0)) }
    }
}

/// The included part of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct MaskRef<'a> {
    /// `None`: all of it.
    of: Option<(&'a FieldMask, u32)>,
}

impl<'a> MaskRef<'a> {
    pub(super) const ALL: MaskRef<'static> = MaskRef { of: None };

    #[inline]
    pub(super) fn is_all(self) -> bool {
        self.of.is_none()
    }

    /// The included part of field `number`; `None` if nothing.
    #[inline]
    pub(super) fn field(self, number: u32) -> Option<MaskRef<'a>> {
        let Some((mask, node)) = self.of else { return Some(self) };
        let fields = &mask.nodes[node as usize].fields;
        let found = fields.binary_search_by_key(&number, |&(number, _)| number).ok()?;
        match fields[found].1 {
            WHOLE => Some(MaskRef { of: None }),
            node => Some(MaskRef { of: Some((mask, node)) }),
        }
    }
}

/// The path as field numbers as they are on the wire.
pub(super) fn numbers_of(path: &str, schema: Option<&Schema>) -> Result<Vec<u32>, MaskError> {
    let mut numbers = Vec::new();
    // The message that the next step is a field of; `None` once nothing is known of it.
    let mut shape = schema.map(|schema| schema.root());
    let mut steps = path.split('.').peekable();
    while let Some(step) = steps.next() {
        if numbers.len() >= STEPS_MAX {
            return Err(MaskError::TooLong);
        }
        let unknown = || MaskError::UnknownField { path: path.to_owned(), step: step.to_owned() };
        let by_number = step.parse::<u32>().ok();
        let field = shape.and_then(|shape| match by_number {
            Some(number) => shape.field(number),
            None => shape.field_named(step),
        });
        let (Some(field), Some(schema)) = (field, schema) else {
            numbers.push(by_number.filter(|&number| number != 0).ok_or_else(unknown)?);
            shape = None;
            continue;
        };
        numbers.push(field.number());
        shape = match field.kind {
            Kind::Message | Kind::MessageList => Some(schema.shape(field.shape)),
            // After a name the path continues in the value; after a number with the entry's own fields.
            Kind::Map if by_number.is_none() => {
                if steps.peek().is_some() {
                    numbers.push(2);
                }
                let value = schema.shape(field.shape).value();
                (value.kind == Kind::Message).then(|| schema.shape(value.shape))
            }
            Kind::Map => Some(schema.shape(field.shape)),
            _ => None,
        };
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_path_includes_a_longer_one() {
        for paths in [["1", "1.2"], ["1.2", "1"]] {
            let mask = FieldMask::resolve(&paths, None).unwrap().unwrap();
            let field = mask.root().field(1).unwrap();
            assert!(field.is_all(), "{paths:?}");
            assert!(mask.root().field(2).is_none());
        }
    }

    #[test]
    fn names_need_a_schema_and_zero_is_no_field() {
        for path in ["name", "0", "1..2", "1.x"] {
            assert!(numbers_of(path, None).is_err(), "{path:?}");
        }
    }

    // channeld's mask of nothing but unknown fields shows none, and one of nothing but empty paths shows all.
    #[test]
    fn what_is_unknown_shows_nothing_and_what_is_empty_says_nothing() {
        let mask = FieldMask::resolve(&["name", "", "2"], None).unwrap().unwrap();
        assert!(mask.root().field(1).is_none() && mask.root().field(2).is_some());
        let mask = FieldMask::resolve(&["name"], None).unwrap().unwrap();
        assert!(mask.root().field(1).is_none());
        for none in [&[][..], &[""], &["", ""]] {
            assert_eq!(FieldMask::resolve(none, None), Ok(None));
        }
    }

    #[test]
    fn masks_are_bounded() {
        let long = vec!["1"; STEPS_MAX + 1].join(".");
        assert_eq!(FieldMask::resolve(&[long], None), Err(MaskError::TooLong));
        assert_eq!(FieldMask::resolve(&vec!["1"; PATHS_MAX + 1], None), Err(MaskError::TooLong));
    }
}
