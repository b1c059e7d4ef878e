/// A quantiser that can write a `T` into words and read it back.
///
/// Which types suit which quantiser, the compiler says at the field:
///
/// ```compile_fail,E0277
/// #[derive(Default)]
/// struct Metres(f32);
///
/// #[derive(Default, throng_schema::Replicate)]
/// struct Tower {
///     #[replicate(fixed(min = 0, max = 300, step = 0.5))]
///     height: Metres, // Metres is not Real
/// }
/// ```
///
/// ```compile_fail,E0277
/// #[derive(Clone, Copy, Default)]
/// enum Weather {
///     #[default]
///     Fair,
/// }
///
/// #[derive(Default, throng_schema::Replicate)]
/// struct Sky {
///     #[replicate(enumeration)]
///     weather: Weather, // Weather is not ReplicateEnum
/// }
/// ```
///
/// ```compile_fail,E0080
/// #[derive(Default, throng_schema::Replicate)]
/// struct Rack {
///     #[replicate(bool)]
///     lamps: [bool; 0], // an array field has 1 to 255 elements
/// }
/// ```
pub trait Element<T> {
    /// Elements that a `T` is: more than 1 for a vector whose components are quantised one by one.
    const COUNT: usize = 1;

    /// Writes the quantised value into the words of its elements.
    ///
    /// # Panics
    /// If `words` is shorter than the elements.
    fn store(&self, value: &T, words: &mut [u32]);

    /// The value that the words stand for.
    ///
    /// # Panics
    /// If `words` is shorter than the element. Words that no value is written as give some value.
    fn load(&self, words: &[u32]) -> T;
}

/// A floating point number: `f32` or `f64`.
#[diagnostic::on_unimplemented(
    message = "a field of type `{Self}` does not suit its quantiser",
    label = "the quantiser of this field takes f32 or f64, or an array of them"
)]
pub trait Real: Copy {
    /// The same number, wider.
    fn to_f64(self) -> f64;
    /// The nearest number of this type.
    fn from_f64(value: f64) -> Self;
}

impl Real for f32 {
    #[inline]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    #[inline]
    fn from_f64(value: f64) -> f32 {
        value as f32
    }
}

impl Real for f64 {
    #[inline]
    fn to_f64(self) -> f64 {
        self
    }
    #[inline]
    fn from_f64(value: f64) -> f64 {
        value
    }
}

/// A vector of `N` numbers. Implement it for the vector and quaternion types of your game's mathematics library;
/// quaternions are in the order x, y, z, w.
#[diagnostic::on_unimplemented(
    message = "a field of type `{Self}` does not suit its quantiser",
    label = "the quantiser of this field takes an array of {N} f32 or f64, or a type that implements `Vector<{N}>`"
)]
pub trait Vector<const N: usize> {
    /// The numbers.
    fn components(&self) -> [f64; N];
    /// The vector of these numbers.
    fn from_components(components: [f64; N]) -> Self;
}

impl<T: Real, const N: usize> Vector<N> for [T; N] {
    #[inline]
    fn components(&self) -> [f64; N] {
        self.map(T::to_f64)
    }
    #[inline]
    fn from_components(components: [f64; N]) -> [T; N] {
        components.map(T::from_f64)
    }
}

/// A whole number of at most 64 bits.
#[diagnostic::on_unimplemented(
    message = "a field of type `{Self}` does not suit its quantiser",
    label = "the quantiser of this field takes an integer of at most 64 bits, or an array of them"
)]
pub trait Whole: Copy {
    /// The number, moved into the range of `i64` if it lies above.
    fn saturating_i64(self) -> i64;
    /// The number modulo 2^64, in two's complement.
    fn bits(self) -> u64;
    /// The number that has these lowest bits.
    fn from_bits(bits: u64) -> Self;
}

macro_rules! whole {
    ($($unsigned:ty, $signed:ty;)*) => { $(
        impl Whole for $unsigned {
            #[inline]
            fn saturating_i64(self) -> i64 {
                i64::try_from(self).unwrap_or(i64::MAX)
            }
            #[inline]
            fn bits(self) -> u64 {
                self as u64
            }
            #[inline]
            fn from_bits(bits: u64) -> $unsigned {
                bits as $unsigned
            }
        }
        impl Whole for $signed {
            #[inline]
            fn saturating_i64(self) -> i64 {
                self as i64
            }
            #[inline]
            fn bits(self) -> u64 {
                self as i64 as u64
            }
            #[inline]
            fn from_bits(bits: u64) -> $signed {
                bits as $signed
            }
        }
    )* };
}

whole! { u8, i8; u16, i16; u32, i32; u64, i64; usize, isize; }
