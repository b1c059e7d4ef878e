//! A struct's declaration, read from its tokens.

use crate::attribute::{Entry, Errors, entries};
use crate::quantiser::{self, Quantiser};
use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Data, DeriveInput, Error, Field, Fields, FieldsNamed, GenericArgument, Ident, LitStr, Path, PathArguments, Result,
    Type, Visibility,
};

/// As many as a field mask has bits.
const MAX_FIELDS: usize = 64;
/// Longest name of a kind, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// A struct whose attributes are right.
pub(crate) struct Declaration<'a> {
    pub(crate) ident: &'a Ident,
    pub(crate) visibility: &'a Visibility,
    /// Name of the kind.
    pub(crate) name: String,
    /// Path of the crate `throng_schema`.
    pub(crate) schema: Path,
    /// The fields that are replicated, in order.
    pub(crate) fields: Vec<FieldDeclaration<'a>>,
}

/// One replicated field.
pub(crate) struct FieldDeclaration<'a> {
    pub(crate) ident: &'a Ident,
    /// Name without `r#`.
    pub(crate) name: String,
    /// Type of the value, or of an item of a list.
    pub(crate) ty: &'a Type,
    pub(crate) shape: Shape,
    pub(crate) quantiser: Quantiser,
    pub(crate) condition: Condition,
    pub(crate) notify: bool,
    pub(crate) predict: Option<Predict>,
    pub(crate) threshold: Option<f64>,
}

/// How a position is reckoned.
#[derive(Clone)]
pub(crate) struct Predict {
    /// Name of the velocity's field.
    pub(crate) by: String,
    pub(crate) error_m: f64,
    span: Span,
}

/// How many values a field has.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Shape {
    /// One, or an array of them.
    Value,
    /// None or one.
    Optional,
    /// As many as a list has, at most so many.
    List(u8),
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Condition {
    Public,
    OwnerOnly,
    SkipOwner,
    HideFromOwner,
    InitialOnly,
    /// Of the copy of a field for clients far away: see [`Words::far`].
    Far,
}

impl<'a> Declaration<'a> {
    /// Reads a struct. `schema` is the path of the crate `throng_schema` unless the struct names another.
    pub(crate) fn of(input: &'a DeriveInput, schema: &str) -> Result<Declaration<'a>> {
        let named = named_fields(input)?;
        let mut errors = Errors::default();
        let mut declaration = Declaration {
            ident: &input.ident,
            visibility: &input.vis,
            name: input.ident.unraw().to_string(),
            schema: syn::parse_str(schema)?,
            fields: Vec::new(),
        };
        for entry in entries(&input.attrs, &mut errors) {
            errors.keep(declaration.set(&entry));
        }
        // Copies stand behind all fields, so that those of each audience stand together.
        let mut copies = Vec::new();
        for field in &named.named {
            let Some((field, copy)) = FieldDeclaration::of(field, &mut errors) else { continue };
            declaration.fields.push(field);
            copies.extend(copy);
        }
        declaration.fields.extend(copies);
        errors.keep(declaration.check());
        errors.into_result().map(|()| declaration)
    }

    /// Takes an entry of the struct's own attribute.
    fn set(&mut self, entry: &Entry) -> Result<()> {
        let text = entry.value.as_ref().and_then(|value| value.text());
        match (entry.word.to_string().as_str(), text) {
            ("name", Some(name)) if (1..=MAX_NAME_BYTES).contains(&name.len()) => {
                self.name = name;
                Ok(())
            }
            ("crate", Some(path)) => {
                self.schema = LitStr::new(&path, entry.word.span()).parse()?;
                Ok(())
            }
            ("name", _) => {
                Err(entry.error(format_args!("the name of a kind is a text of 1 to {MAX_NAME_BYTES} bytes")))
            }
            ("crate", _) => Err(entry.error("crate is the path of throng_schema as a text: crate = \"game::schema\"")),
            (other, _) => Err(entry.error(format_args!(
                "unknown word `{other}` for a struct: allowed are name = \"...\" and crate = \"...\""
            ))),
        }
    }

    /// Checks what concerns more than one field.
    fn check(&self) -> Result<()> {
        if self.fields.len() > MAX_FIELDS {
            let message = format!(
                "`{}` has {} replicated fields, and at most {MAX_FIELDS} are possible: split it, or make arrays",
                self.ident,
                self.fields.len()
            );
            return Err(Error::new(self.fields[MAX_FIELDS].ident.span(), message));
        }
        let mut positions = self.fields.iter().filter(|field| field.is_position());
        if let (Some(first), Some(second)) = (positions.next(), positions.next()) {
            let message = format!(
                "field `{}`: a kind has one position, and `{}` is it; allowed here is fixed(min, max, step)",
                second.name, first.name
            );
            return Err(Error::new(second.ident.span(), message));
        }
        self.fields.iter().try_for_each(|field| self.check_prediction(field))
    }

    /// Checks the velocity of a predicted position.
    fn check_prediction(&self, position: &FieldDeclaration<'_>) -> Result<()> {
        let Some(Predict { by, span, .. }) = &position.predict else { return Ok(()) };
        let error = |message: String| Err(Error::new(*span, format!("field `{}`: {message}", position.name)));
        let Some(velocity) = self.fields.iter().find(|field| field.name == *by) else {
            return error(format!("predict by `{by}`: the struct has no replicated field of this name"));
        };
        if !matches!(velocity.quantiser, Quantiser::Fixed { .. }) || velocity.shape != Shape::Value {
            return error(format!(
                "predict by `{by}`: a velocity is an array of three values with fixed(min, max, step)"
            ));
        }
        if velocity.condition == Condition::InitialOnly || !velocity.condition.reaches_as(position.condition) {
            return error(format!("predict by `{by}`: the velocity must go to the same audience as the position"));
        }
        Ok(())
    }
}

impl<'a> FieldDeclaration<'a> {
    /// Whether it is the position of the kind, which for clients far away may have a copy.
    pub(crate) fn is_position(&self) -> bool {
        matches!(self.quantiser, Quantiser::Position { .. }) && self.condition != Condition::Far
    }

    /// Reads a field, and makes its copy for clients far away if it says `far`. `None` if it is skipped or wrong.
    fn of(field: &'a Field, errors: &mut Errors) -> Option<(FieldDeclaration<'a>, Option<FieldDeclaration<'a>>)> {
        let (field, far) = FieldDeclaration::read(field, errors)?;
        match far.as_ref().map(|far| far.copy_of(&field)).transpose() {
            Ok(copy) => Some((field, copy)),
            Err(message) => {
                let span = far.map_or(ident_span(&field), |far| far.span);
                errors.push(Error::new(span, format!("field `{}`: {message}", field.name)));
                None
            }
        }
    }

    /// Reads a field; `None` if it is skipped or wrong.
    fn read(field: &'a Field, errors: &mut Errors) -> Option<(FieldDeclaration<'a>, Option<Far>)> {
        let ident = field.ident.as_ref()?;
        let error = |span, message: String| Error::new(span, format!("field `{ident}`: {message}"));
        let mut broken = Errors::default();
        let entries = entries(&field.attrs, &mut broken);
        if let Err(unreadable) = broken.into_result() {
            errors.push(error(unreadable.span(), unreadable.to_string()));
            return None;
        }
        if let [entry] = entries.as_slice()
            && entry.word == "skip"
            && entry.is_bare()
        {
            return None;
        }
        let mut words = Words::default();
        for entry in &entries {
            if let Err(message) = words.take(entry) {
                errors.push(error(entry.word.span(), message));
                return None;
            }
        }
        let Some(entry) = words.quantiser else {
            let message = format!("a quantiser is missing: #[replicate(skip)], or one of {}", quantiser::ALLOWED);
            errors.push(error(ident.span(), message));
            return None;
        };
        let (shape, ty) = match words.shape(entry, &field.ty) {
            Ok(shaped) => shaped,
            Err(message) => {
                errors.push(error(field.ty.span(), message));
                return None;
            }
        };
        let field = FieldDeclaration {
            ident,
            name: ident.unraw().to_string(),
            ty,
            shape,
            quantiser: errors.keep(Quantiser::of(entry, ident, ty))?,
            condition: words.condition.unwrap_or(Condition::Public),
            notify: words.notify,
            predict: words.predict,
            threshold: words.threshold.map(|(threshold, _)| threshold),
        };
        if let Some((threshold, span)) = words.threshold
            && let Err(message) = check_threshold(threshold, &field)
        {
            errors.push(error(span, message));
            return None;
        }
        if let Some(predict) = &field.predict
            && let Err(message) = predict.check(&field)
        {
            errors.push(error(predict.span, message));
            return None;
        }
        Some((field, words.far))
    }
}

fn check_threshold(threshold: f64, field: &FieldDeclaration<'_>) -> std::result::Result<(), String> {
    match field.quantiser {
        Quantiser::Fixed { min, max, step } if field.shape == Shape::Value => {
            let is_possible = threshold >= step && threshold <= max - min;
            is_possible.then_some(()).ok_or_else(|| {
                format!(
                    "the threshold ({threshold}) must be at least a step ({step}), and at most the range ({})",
                    max - min
                )
            })
        }
        Quantiser::Angle { bits } if field.shape == Shape::Value => {
            let step = std::f64::consts::TAU / f64::from(1u32 << bits);
            (threshold >= step && threshold <= std::f64::consts::PI).then_some(()).ok_or_else(|| {
                format!("the threshold ({threshold}) must be at least a step ({step:.6}), and at most half a turn")
            })
        }
        _ => Err("`threshold` is for `fixed` values and angles that are always there".to_owned()),
    }
}

fn ident_span(field: &FieldDeclaration<'_>) -> Span {
    field.ident.span()
}

/// The word `far` or `far(step = 0.5)`.
struct Far {
    /// The step of the copy.
    step: Option<f64>,
    span: Span,
}

impl Far {
    fn of(entry: &Entry) -> std::result::Result<Far, String> {
        let span = entry.word.span();
        if entry.is_bare() {
            return Ok(Far { step: None, span });
        }
        let step = match entry.parameters.as_slice() {
            [parameter] if parameter.word == "step" => parameter.value.real(),
            _ => None,
        };
        let step = step.filter(|step| *step > 0.0 && step.is_finite());
        step.map(|step| Far { step: Some(step), span }).ok_or_else(|| "`far` takes a step: far(step = 0.5)".to_owned())
    }

    /// The field that clients far away are sent in place of this one.
    fn copy_of<'a>(&self, field: &FieldDeclaration<'a>) -> std::result::Result<FieldDeclaration<'a>, String> {
        if !matches!(field.condition, Condition::Public | Condition::SkipOwner) {
            return Err("`far` is for fields that everybody may see".to_owned());
        }
        let quantiser = match (field.quantiser, self.step) {
            (Quantiser::Nested, _) => return Err("`far` stands at the fields of the nested struct".to_owned()),
            (Quantiser::Position { step }, Some(far)) if far >= step => Quantiser::Position { step: far },
            (Quantiser::Fixed { min, max, .. }, Some(far)) if far > max - min => {
                return Err(format!("the step of `far` ({far}) must not be larger than the range ({})", max - min));
            }
            (Quantiser::Fixed { min, max, step }, Some(far)) if far >= step => Quantiser::Fixed { min, max, step: far },
            (Quantiser::Position { step } | Quantiser::Fixed { step, .. }, Some(_)) => {
                return Err(format!("the step of `far` must be at least the field's own ({step})"));
            }
            (_, Some(_)) => return Err("only `position` and `fixed` have a step: leave it out".to_owned()),
            (same, None) => same,
        };
        let name = format!("{}_far", field.name);
        Ok(FieldDeclaration { name, quantiser, condition: Condition::Far, predict: None, threshold: None, ..*field })
    }
}

impl Predict {
    /// Reads `predict(by = "velocity", error_m = 0.03)`.
    fn of(entry: &Entry) -> std::result::Result<Predict, String> {
        let value = |word: &str| entry.parameters.iter().find(|parameter| parameter.word == word);
        let by = value("by").and_then(|parameter| parameter.value.text());
        let error_m = value("error_m").and_then(|parameter| parameter.value.real());
        match (by, error_m, entry.parameters.len()) {
            (Some(by), Some(error_m), 2) => Ok(Predict { by, error_m, span: entry.word.span() }),
            _ => Err("`predict` needs the velocity's field and the error: predict(by = \"velocity\", error_m = 0.03)"
                .to_owned()),
        }
    }

    /// Checks what concerns the position alone.
    fn check(&self, field: &FieldDeclaration<'_>) -> std::result::Result<(), String> {
        let Quantiser::Position { step } = field.quantiser else { return Err("`predict` is for positions".to_owned()) };
        if matches!(field.condition, Condition::InitialOnly | Condition::OwnerOnly) {
            return Err("a position that is sent once, or to the owner alone, is exact: leave out `predict`".to_owned());
        }
        match self.error_m >= step && self.error_m <= step * f64::from(1 << 30) {
            true => Ok(()),
            false => {
                Err(format!("error_m ({}) must be at least a step ({step}), and at most 2^30 steps", self.error_m))
            }
        }
    }
}

/// The words of a field's attribute.
#[derive(Default)]
struct Words<'a> {
    quantiser: Option<&'a Entry>,
    condition: Option<Condition>,
    notify: bool,
    /// The most items of a list.
    list: Option<u8>,
    predict: Option<Predict>,
    far: Option<Far>,
    threshold: Option<(f64, Span)>,
}

impl<'a> Words<'a> {
    /// How many values the field has, and the type of one.
    fn shape<'t>(&self, quantiser: &Entry, ty: &'t Type) -> std::result::Result<(Shape, &'t Type), String> {
        let (option, list) = (argument_of(ty, "Option"), argument_of(ty, "Vec"));
        let is_bytes = quantiser.word == "bytes";
        let is_single = ["position", "nested"].iter().any(|word| quantiser.word == word);
        match (self.list, option, list) {
            (_, Some(_), _) if is_single => Err(format!("`{}` cannot be optional: it is always there", quantiser.word)),
            (None, Some(value), _) => Ok((Shape::Optional, value)),
            (None, None, None) => Ok((Shape::Value, ty)),
            (None, None, Some(_)) if is_bytes => Ok((Shape::Value, ty)),
            (None, None, Some(_)) => Err("a Vec needs a bound: add list(max = ...), 1 to 255 items".to_owned()),
            (Some(_), ..) if is_single || is_bytes || quantiser.word == "text" => {
                Err(format!("a list of `{}` is not possible: make each item an object of its own", quantiser.word))
            }
            (Some(items), None, Some(item)) => Ok((Shape::List(items), item)),
            (Some(_), ..) => Err("`list` is for Vec".to_owned()),
        }
    }

    fn take(&mut self, entry: &'a Entry) -> std::result::Result<(), String> {
        let word = entry.word.to_string();
        if quantiser::is_quantiser(&entry.word) {
            return match self.quantiser.replace(entry) {
                Some(first) => Err(format!("two quantisers, `{}` and `{word}`: a field has one", first.word)),
                None => Ok(()),
            };
        }
        if let Some(condition) = Condition::of(&word) {
            return match (entry.is_bare(), self.condition.replace(condition)) {
                (true, None) => Ok(()),
                (true, Some(_)) => Err("a field has one condition".to_owned()),
                (false, _) => Err(format!("`{word}` takes no parameters")),
            };
        }
        match word.as_str() {
            "notify" if entry.is_bare() => {
                self.notify = true;
                Ok(())
            }
            "notify" => Err("`notify` takes no parameters".to_owned()),
            "list" => {
                let [parameter] = entry.parameters.as_slice() else {
                    return Err("`list` needs the most items: list(max = 8)".to_owned());
                };
                let items = (parameter.word == "max").then(|| parameter.value.whole()).flatten();
                let items = items.and_then(|items| u8::try_from(items).ok()).filter(|&items| items > 0);
                self.list = Some(items.ok_or("`list` needs the most items, 1 to 255: list(max = 8)")?);
                Ok(())
            }
            "predict" => {
                self.predict = Some(Predict::of(entry)?);
                Ok(())
            }
            "threshold" => {
                let value = entry.value.as_ref().and_then(|value| value.real());
                let value = value.ok_or("`threshold` needs a number: threshold = 0.04")?;
                self.threshold = Some((value, entry.word.span()));
                Ok(())
            }
            "far" => {
                self.far = Some(Far::of(entry)?);
                Ok(())
            }
            "skip" => Err("`skip` stands alone: a skipped field is not sent".to_owned()),
            "enum" => Err("unknown word `enum`: the quantiser of enums is `enumeration`".to_owned()),
            _ if entry.is_bare() => Err(format!(
                "unknown word `{word}`: allowed are the conditions public, owner_only, skip_owner, \
                 hide_from_owner, initial_only, the words notify, list(max), predict(by, error_m), threshold and far, and the \
                 quantisers {}",
                quantiser::ALLOWED
            )),
            _ => Err(format!("unknown quantiser `{word}`: allowed are {}", quantiser::ALLOWED)),
        }
    }
}

/// `T` of a type `Option<T>` or `Vec<T>`, by its name.
fn argument_of<'t>(ty: &'t Type, name: &str) -> Option<&'t Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|segment| segment.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(argument)) => Some(argument),
        _ => None,
    }
}

impl Condition {
    /// Whether two conditions have one audience.
    fn reaches_as(self, other: Condition) -> bool {
        let audience = |condition| match condition {
            Condition::Public | Condition::SkipOwner | Condition::InitialOnly => 0,
            Condition::OwnerOnly => 1,
            Condition::HideFromOwner => 2,
            Condition::Far => 3,
        };
        audience(self) == audience(other)
    }

    fn of(word: &str) -> Option<Condition> {
        match word {
            "public" => Some(Condition::Public),
            "owner_only" => Some(Condition::OwnerOnly),
            "skip_owner" => Some(Condition::SkipOwner),
            "hide_from_owner" => Some(Condition::HideFromOwner),
            "initial_only" => Some(Condition::InitialOnly),
            _ => None,
        }
    }
}

fn named_fields(input: &DeriveInput) -> Result<&FieldsNamed> {
    let name = &input.ident;
    if !input.generics.params.is_empty() {
        let message =
            format!("`{name}` is generic: a kind has one layout, so Replicate takes structs without parameters");
        return Err(Error::new(input.generics.span(), message));
    }
    match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(named) => Ok(named),
            _ => Err(Error::new(name.span(), format!("`{name}` must have named fields: they name what is replicated"))),
        },
        Data::Enum(_) => {
            let message = format!("`{name}` is an enum: Replicate takes structs; a field of it derives ReplicateEnum");
            Err(Error::new(name.span(), message))
        }
        Data::Union(_) => Err(Error::new(name.span(), format!("`{name}` is a union: Replicate takes structs"))),
    }
}
