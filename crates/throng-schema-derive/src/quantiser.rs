//! The quantisers' words, their parameters, and the types that they take.

use crate::attribute::{Entry, Value};
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprLit, Ident, Lit, Result, Type};

/// A quantiser whose parameters are in range.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Quantiser {
    Fixed {
        min: f64,
        max: f64,
        step: f64,
    },
    Position {
        step: f64,
    },
    Angle {
        bits: u32,
    },
    UnitVector {
        bits: u32,
    },
    Quaternion {
        bits: u32,
    },
    Integer {
        min: i64,
        max: i64,
    },
    Bool,
    Enumeration,
    Float16,
    Float32,
    Text {
        max_bytes: u32,
    },
    Bytes {
        max_bytes: u32,
    },
    Object,
    /// No quantiser: the fields of a struct, each with its own.
    Nested,
}

/// All quantisers, as the messages list them.
pub(crate) const ALLOWED: &str = "fixed(min, max, step), position(step), angle(bits), unit_vector(bits), \
     quaternion(bits), integer or integer(min, max), bool, enumeration, float16, float32, text(max_bytes), \
     bytes(max_bytes), object, nested";

const WORDS: [&str; 14] = [
    "fixed",
    "position",
    "angle",
    "unit_vector",
    "quaternion",
    "integer",
    "bool",
    "enumeration",
    "float16",
    "float32",
    "text",
    "bytes",
    "object",
    "nested",
];

/// Whether a word of an attribute is a quantiser.
pub(crate) fn is_quantiser(word: &Ident) -> bool {
    WORDS.iter().any(|known| word == known)
}

impl Quantiser {
    /// The quantiser that an entry declares for the field `name` of type `ty`.
    pub(crate) fn of(entry: &Entry, name: &Ident, ty: &Type) -> Result<Quantiser> {
        let parameters = Parameters { entry, name };
        let quantiser = match entry.word.to_string().as_str() {
            "fixed" => parameters.fixed(ty)?,
            "position" => Quantiser::Position { step: parameters.step()? },
            "angle" => Quantiser::Angle { bits: parameters.bits("angle(bits)", 1, 22)? },
            "unit_vector" => Quantiser::UnitVector { bits: parameters.bits("unit_vector(bits)", 2, 16)? },
            "quaternion" => Quantiser::Quaternion { bits: parameters.bits("quaternion(bits)", 2, 16)? },
            "integer" => parameters.integer(ty)?,
            "bool" => parameters.none(Quantiser::Bool)?,
            "enumeration" => parameters.none(Quantiser::Enumeration)?,
            "float16" => parameters.none(Quantiser::Float16)?,
            "float32" => parameters.none(Quantiser::Float32)?,
            "text" => Quantiser::Text { max_bytes: parameters.max_bytes("text(max_bytes)")? },
            "bytes" => Quantiser::Bytes { max_bytes: parameters.max_bytes("bytes(max_bytes)")? },
            "object" => parameters.none(Quantiser::Object)?,
            "nested" => parameters.none(Quantiser::Nested)?,
            _ => return Err(parameters.error(format_args!("unknown quantiser `{}`: {ALLOWED}", entry.word))),
        };
        quantiser.check_type(name, ty)?;
        Ok(quantiser)
    }

    /// Words of one element.
    pub(crate) fn words(self) -> usize {
        match self {
            Quantiser::Position { .. } => 3,
            Quantiser::Quaternion { .. } | Quantiser::Object => 2,
            Quantiser::Integer { min, max } => 1 + usize::from(max.wrapping_sub(min) as u64 > u64::from(u32::MAX)),
            Quantiser::Text { .. } | Quantiser::Bytes { .. } | Quantiser::Nested => 0,
            _ => 1,
        }
    }

    pub(crate) fn is_blob(self) -> bool {
        matches!(self, Quantiser::Text { .. } | Quantiser::Bytes { .. })
    }

    pub(crate) fn is_nested(self) -> bool {
        self == Quantiser::Nested
    }

    /// Splits the type of a field into element type and, for an array field, number of elements.
    pub(crate) fn elements(self, ty: &Type) -> (&Type, Option<&Expr>) {
        let Type::Array(array) = ty else { return (ty, None) };
        match self {
            Quantiser::Position { .. } | Quantiser::Text { .. } | Quantiser::Bytes { .. } | Quantiser::Nested => {
                (ty, None)
            }
            Quantiser::UnitVector { .. } | Quantiser::Quaternion { .. } if is_real(&array.elem) => (ty, None),
            _ => (&array.elem, Some(&array.len)),
        }
    }

    /// The required type of an element, for messages.
    fn takes(self) -> &'static str {
        match self {
            Quantiser::Fixed { .. } | Quantiser::Angle { .. } | Quantiser::Float16 | Quantiser::Float32 => {
                "f32 or f64, or an array of them"
            }
            Quantiser::Position { .. } => "[f32; 3] or [f64; 3]",
            Quantiser::UnitVector { .. } => "[f32; 3] or [f64; 3], or an array of them",
            Quantiser::Quaternion { .. } => "[f32; 4] or [f64; 4], or an array of them",
            Quantiser::Integer { .. } => "an integer of at most 64 bits, or an array of them",
            Quantiser::Bool => "bool, or an array of them",
            Quantiser::Enumeration => "an enum that derives ReplicateEnum, or an array of them",
            Quantiser::Text { .. } => "String",
            Quantiser::Bytes { .. } => "Vec<u8>",
            Quantiser::Object => "ObjectId, or an array of them",
            Quantiser::Nested => "a struct that derives Replicate, and no array, Option or list of them",
        }
    }

    /// Refuses types that are known from their tokens not to suit. Names that are not known here may be aliases.
    fn check_type(self, name: &Ident, ty: &Type) -> Result<()> {
        let (element, _) = self.elements(ty);
        let suits = match (self, element) {
            (Quantiser::Position { .. } | Quantiser::UnitVector { .. }, Type::Array(array)) => {
                is_real(&array.elem) && may_be(&array.len, 3)
            }
            (Quantiser::Quaternion { .. }, Type::Array(array)) => is_real(&array.elem) && may_be(&array.len, 4),
            (_, Type::Path(_)) => known_name(element).is_none_or(|known| self.takes_name(&known)),
            (_, Type::Macro(_) | Type::Paren(_) | Type::Group(_)) => true,
            _ => false,
        };
        let message = || format!("field `{name}`: its quantiser takes {}", self.takes());
        if suits { Ok(()) } else { Err(Error::new(ty.span(), message())) }
    }

    fn takes_name(self, known: &str) -> bool {
        match self {
            Quantiser::Fixed { .. } | Quantiser::Angle { .. } | Quantiser::Float16 | Quantiser::Float32 => {
                matches!(known, "f32" | "f64")
            }
            Quantiser::Integer { .. } => natural_range(known).is_some() || matches!(known, "usize" | "isize"),
            Quantiser::Bool => known == "bool",
            Quantiser::Text { .. } => known == "String",
            Quantiser::Bytes { .. } => known == "Vec",
            Quantiser::Object => known == "ObjectId",
            _ => false,
        }
    }
}

/// The parameters of an entry, read one by one.
struct Parameters<'a> {
    entry: &'a Entry,
    name: &'a Ident,
}

impl Parameters<'_> {
    fn fixed(&self, ty: &Type) -> Result<Quantiser> {
        const FORM: &str = "fixed(min, max, step)";
        self.only(FORM, &["min", "max", "step"])?;
        let (min, max) = (self.real(FORM, "min")?, self.real(FORM, "max")?);
        let step = self.real(FORM, "step")?;
        let farthest = min.abs().max(max.abs());
        if min >= max {
            return Err(self.error(format_args!("min ({min}) must be below max ({max})")));
        }
        if step <= 0.0 {
            return Err(self.error("step must be above 0"));
        }
        if step > max - min {
            return Err(self.error(format_args!("step ({step}) must not be larger than the range ({})", max - min)));
        }
        if (max - min) / step > f64::from(u32::MAX) || farthest / step > (1u64 << 48) as f64 {
            return Err(self.error("the range must have at most 2^32 steps and lie within 2^48 steps of zero"));
        }
        let element = if let Type::Array(array) = ty { &array.elem } else { ty };
        if known_name(element).as_deref() == Some("f32") && farthest / step > f64::from(1u32 << 23) {
            return Err(self.error("step is finer than f32 can tell apart: use f64 or a step above max / 2^23"));
        }
        Ok(Quantiser::Fixed { min, max, step })
    }

    fn step(&self) -> Result<f64> {
        const FORM: &str = "position(step)";
        self.only(FORM, &["step"])?;
        let step = self.real(FORM, "step")?;
        if step.is_normal() && step > 0.0 { Ok(step) } else { Err(self.error("step must be above 0")) }
    }

    fn bits(&self, form: &str, lowest: u32, highest: u32) -> Result<u32> {
        self.only(form, &["bits"])?;
        self.whole_in(form, "bits", lowest, highest)
    }

    fn max_bytes(&self, form: &str) -> Result<u32> {
        self.only(form, &["max_bytes"])?;
        self.whole_in(form, "max_bytes", 1, 4 << 20)
    }

    fn integer(&self, ty: &Type) -> Result<Quantiser> {
        const FORM: &str = "integer(min, max)";
        let element = if let Type::Array(array) = ty { &array.elem } else { ty };
        let known = known_name(element);
        let natural = known.as_deref().and_then(natural_range);
        if self.entry.is_bare() {
            let natural = natural.map(|(min, max)| Quantiser::Integer { min, max });
            return natural.ok_or_else(|| {
                self.error("integer without a range is for u8 to u64 and i8 to i64: state it, integer(min, max)")
            });
        }
        self.only(FORM, &["min", "max"])?;
        let (min, max) = (self.whole(FORM, "min")?, self.whole(FORM, "max")?);
        if min >= max {
            return Err(self.error(format_args!("min ({min}) must be below max ({max})")));
        }
        let (lowest, highest) = match (known.as_deref(), natural) {
            (Some("u64" | "usize"), _) => (0, i64::MAX),
            (_, Some(range)) => range,
            _ => (i64::MIN, i64::MAX),
        };
        match (i64::try_from(min), i64::try_from(max)) {
            (Ok(min), Ok(max)) if min >= lowest && max <= highest => Ok(Quantiser::Integer { min, max }),
            _ => Err(self.error(format_args!("the range must lie within that of the type, {lowest} to {highest}"))),
        }
    }

    fn none(&self, quantiser: Quantiser) -> Result<Quantiser> {
        if self.entry.is_bare() {
            return Ok(quantiser);
        }
        Err(self.error(format_args!("`{}` takes no parameters", self.entry.word)))
    }

    fn real(&self, form: &str, word: &str) -> Result<f64> {
        let value = self.value(form, word)?;
        let real = value.real().filter(|real| real.is_finite());
        real.ok_or_else(|| self.error_at(value, format_args!("{word} of {form} must be a number")))
    }

    fn whole(&self, form: &str, word: &str) -> Result<i128> {
        let value = self.value(form, word)?;
        value.whole().ok_or_else(|| self.error_at(value, format_args!("{word} of {form} must be a whole number")))
    }

    fn whole_in(&self, form: &str, word: &str, lowest: u32, highest: u32) -> Result<u32> {
        let value = self.value(form, word)?;
        let whole = value.whole().and_then(|whole| u32::try_from(whole).ok());
        let whole = whole.filter(|whole| (lowest..=highest).contains(whole));
        whole.ok_or_else(|| self.error_at(value, format_args!("{word} of {form} must be {lowest} to {highest}")))
    }

    fn value(&self, form: &str, word: &str) -> Result<&Value> {
        let parameter = self.entry.parameters.iter().find(|parameter| parameter.word == word);
        let value = parameter.map(|parameter| &parameter.value);
        value.ok_or_else(|| self.error(format_args!("{word} is missing: {form} needs it")))
    }

    /// Refuses parameters other than `allowed`, and repeated ones.
    fn only(&self, form: &str, allowed: &[&str]) -> Result<()> {
        if let Some(value) = &self.entry.value {
            return Err(self.error_at(value, format_args!("parameters stand in parentheses: {form}")));
        }
        for (index, parameter) in self.entry.parameters.iter().enumerate() {
            let word = &parameter.word;
            let message = if !allowed.iter().any(|known| word == known) {
                format!("unknown parameter `{word}`: allowed is {form}")
            } else if self.entry.parameters[..index].iter().any(|earlier| earlier.word == *word) {
                format!("{word} is given twice")
            } else {
                continue;
            };
            return Err(Error::new(word.span(), format_args!("field `{}`: {message}", self.name)));
        }
        Ok(())
    }

    fn error(&self, message: impl std::fmt::Display) -> Error {
        self.entry.error(format_args!("field `{}`: {message}", self.name))
    }

    fn error_at(&self, value: &Value, message: impl std::fmt::Display) -> Error {
        Error::new(value.span(), format_args!("field `{}`: {message}", self.name))
    }
}

/// The name of a type that is known without looking at the program: a primitive, or one of the three others that a
/// quantiser takes. `None` for all else.
fn known_name(ty: &Type) -> Option<String> {
    const KNOWN: [&str; 19] = [
        "bool", "char", "f32", "f64", "i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32", "u64", "u128",
        "usize", "String", "Vec", "ObjectId",
    ];
    let Type::Path(path) = ty else { return None };
    let name = path.path.segments.last()?.ident.to_string();
    KNOWN.contains(&name.as_str()).then_some(name)
}

fn is_real(ty: &Type) -> bool {
    matches!(known_name(ty).as_deref(), Some("f32" | "f64"))
}

/// Whether the length of an array is `wanted`, or not known from its tokens.
fn may_be(length: &Expr, wanted: u64) -> bool {
    match length {
        Expr::Lit(ExprLit { lit: Lit::Int(literal), .. }) => literal.base10_parse::<u64>().is_ok_and(|n| n == wanted),
        _ => true,
    }
}

/// The whole range of an integer type whose size does not depend on the machine. All of `u64` is, like all of `i64`,
/// the range of 64 bits.
fn natural_range(name: &str) -> Option<(i64, i64)> {
    match name {
        "u8" => Some((0, u8::MAX.into())),
        "u16" => Some((0, u16::MAX.into())),
        "u32" => Some((0, u32::MAX.into())),
        "i8" => Some((i8::MIN.into(), i8::MAX.into())),
        "i16" => Some((i16::MIN.into(), i16::MAX.into())),
        "i32" => Some((i32::MIN.into(), i32::MAX.into())),
        "u64" | "i64" => Some((i64::MIN, i64::MAX)),
        _ => None,
    }
}
