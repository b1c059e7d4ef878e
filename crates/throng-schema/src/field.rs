use crate::arithmetic::{angle_step, bits_for};
use crate::reckoning::whole_steps;
use crate::{Condition, Predict, Quantiser};

/// One field of a kind: what is declared about it, and where its value lies in [`Values`](crate::Values).
///
/// ```
/// use throng_schema::{Condition, Field, Quantiser};
///
/// let ammunition = Field::new("ammunition", Quantiser::Integer { min: 0, max: 30 })
///     .elements(4)
///     .condition(Condition::OwnerOnly);
/// assert_eq!(ammunition.max_bits(), 20);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Name of the field, unique in its kind.
    pub name: &'static str,
    /// How each element is quantised.
    pub quantiser: Quantiser,
    /// Number of elements, 1 to 255: an array is one field, which is sent whole. A direction or rotation is one
    /// element; a position is always three, its axes. For a list, the number of elements of one item.
    pub elements: u8,
    /// For a list, the most items that it can have, at least 1. A list is one field, which is sent whole; its first word
    /// counts the items. An optional value is a list of at most one item.
    pub list: Option<u8>,
    /// The audience of the field.
    pub condition: Condition,
    /// Index of the first word. Set by [`Kind::new`](crate::Kind::new).
    pub word: u16,
    /// Number of words; 0 for a text or byte string, 1 for an optional one. Set by [`Kind::new`](crate::Kind::new).
    pub words: u16,
    /// Index of the blob of a text or byte string. Set by [`Kind::new`](crate::Kind::new).
    pub blob: Option<u16>,
    /// Whether the client raises an event when the field changes.
    pub notify: bool,
    /// Names of the variants of an enum, in order; otherwise empty. They count for the hash.
    pub variants: &'static [&'static str],
    /// For a position: between two statements of it, both ends reckon it from a velocity.
    pub predict: Option<Predict>,
    /// For a fixed-point number or an angle: it is sent when it differs by more than this from what was sent last.
    pub threshold: Option<f64>,
}

impl Field {
    /// A public field of one element (three for a position).
    pub fn new(name: &'static str, quantiser: Quantiser) -> Field {
        Field {
            name,
            quantiser,
            elements: if matches!(quantiser, Quantiser::Position { .. }) { 3 } else { 1 },
            list: None,
            condition: Condition::Public,
            word: 0,
            words: 0,
            blob: None,
            notify: false,
            variants: &[],
            predict: None,
            threshold: None,
        }
    }

    /// An array of `elements` elements.
    #[must_use]
    pub fn elements(self, elements: u8) -> Field {
        Field { elements, ..self }
    }

    /// A list of at most `items` items, each of as many elements as the field has. An optional value is a list of at most
    /// one item.
    #[must_use]
    pub fn list(self, items: u8) -> Field {
        Field { list: Some(items), ..self }
    }

    /// The audience of the field.
    #[must_use]
    pub fn condition(self, condition: Condition) -> Field {
        Field { condition, ..self }
    }

    /// Raises an event on the client when the field changes.
    #[must_use]
    pub fn notify(self) -> Field {
        Field { notify: true, ..self }
    }

    /// Names of the enum's variants, in order.
    #[must_use]
    pub fn variants(self, variants: &'static [&'static str]) -> Field {
        Field { variants, ..self }
    }

    /// Reckons the position from the velocity in the field `by`, to within `error_m` world units along each axis.
    #[must_use]
    pub fn predict(self, by: &'static str, error_m: f64) -> Field {
        Field { predict: Some(Predict { by, error_m }), ..self }
    }

    /// Sends each element only when it differs by more than this, in the units of the value, from what was sent last.
    #[must_use]
    pub fn threshold(self, threshold: f64) -> Field {
        Field { threshold: Some(threshold), ..self }
    }

    /// The threshold in steps, and the bits of a code that count.
    pub(crate) fn threshold_steps(&self) -> Option<(u32, u32)> {
        match (self.threshold?, self.quantiser) {
            (threshold, Quantiser::Fixed { step, .. }) => Some((whole_steps(threshold, step) as u32, u32::MAX)),
            (threshold, Quantiser::Angle { bits }) => {
                Some((whole_steps(threshold, angle_step(bits)) as u32, (1 << bits) - 1))
            }
            _ => None,
        }
    }

    /// The most bits that the field can take on the wire, a position in the widest space.
    pub fn max_bits(&self) -> u32 {
        let item = self.quantiser.max_bits() * u32::from(self.encoded_elements());
        self.list.map_or(item, |items| bits_for(u64::from(items)) + u32::from(items) * item)
    }

    /// Words of the value, or of one item of a list.
    pub(crate) fn item_words(&self) -> usize {
        self.quantiser.words() * usize::from(self.encoded_elements())
    }

    /// Elements that are written one after the other: a position is written as one.
    pub(crate) fn encoded_elements(&self) -> u8 {
        if matches!(self.quantiser, Quantiser::Position { .. }) { 1 } else { self.elements }
    }

    fn check_threshold(&self) -> Result<(), &'static str> {
        let Some(threshold) = self.threshold else { return Ok(()) };
        match self.quantiser {
            Quantiser::Fixed { min, max, step } if self.list.is_none() => {
                let is_possible = whole_steps(threshold, step) >= 1.0 && threshold <= max - min;
                if is_possible {
                    Ok(())
                } else {
                    Err("a threshold must be at least a step, and at most the whole range")
                }
            }
            Quantiser::Angle { bits } if self.list.is_none() => {
                match whole_steps(threshold, angle_step(bits)) >= 1.0 && threshold <= std::f64::consts::PI {
                    true => Ok(()),
                    false => Err("a threshold must be at least a step, and at most half a turn"),
                }
            }
            _ => Err("only a `fixed` value or an angle that is always there can have a threshold"),
        }
    }

    pub(crate) fn check(&self) -> Result<(), &'static str> {
        self.quantiser.check()?;
        self.check_threshold()?;
        match self.quantiser {
            Quantiser::Position { .. } if self.elements != 3 => Err("a position has three elements"),
            Quantiser::Text { .. } | Quantiser::Bytes { .. } if self.elements != 1 => {
                Err("a text or byte string cannot be an array")
            }
            Quantiser::Enum { count } if !self.variants.is_empty() && self.variants.len() != count as usize => {
                Err("the names of the variants must be as many as the variants")
            }
            Quantiser::Position { .. } if self.list.is_some() => Err("a position is always there, and there is one"),
            Quantiser::Text { .. } | Quantiser::Bytes { .. } if self.list.is_some_and(|items| items > 1) => {
                Err("a text or byte string can be optional, and not a list")
            }
            _ if self.elements == 0 => Err("an array needs at least one element"),
            _ if self.list == Some(0) => Err("a list needs room for at least one item"),
            _ if u32::from(self.elements) * u32::from(self.list.unwrap_or(1)) > 255 => {
                Err("the items of a list can have 255 elements together")
            }
            _ => Ok(()),
        }
    }
}
