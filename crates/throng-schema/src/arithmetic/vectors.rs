//! Vectors of other libraries as fields: each component like a separate number, three as a position or direction, four
//! as a rotation.

#[cfg(any(feature = "glam", feature = "mint"))]
macro_rules! components {
    ($codec:ident: $($vector:ty => [$real:ty; $count:literal],)*) => { $(
        impl crate::arithmetic::Element<$vector> for crate::arithmetic::$codec {
            const COUNT: usize = $count;

            #[inline]
            fn store(&self, value: &$vector, words: &mut [u32]) {
                let components: [$real; $count] = (*value).into();
                for (component, word) in components.iter().zip(words.chunks_exact_mut(1)) {
                    self.store(component, word);
                }
            }

            #[inline]
            fn load(&self, words: &[u32]) -> $vector {
                let components: [$real; $count] = std::array::from_fn(|index| self.load(&words[index..=index]));
                components.into()
            }
        }
    )* };
}

#[cfg(any(feature = "glam", feature = "mint"))]
macro_rules! vectors {
    ($($vector:ty => [$real:ty; $count:literal],)*) => {
        components! { Fixed: $($vector => [$real; $count],)* }
        components! { Angle: $($vector => [$real; $count],)* }
        components! { Float16: $($vector => [$real; $count],)* }
        components! { Float32: $($vector => [$real; $count],)* }
    };
}

/// Types that are an array of numbers as a whole: a position, a direction, a rotation.
#[cfg(any(feature = "glam", feature = "mint"))]
macro_rules! wholes {
    ($($vector:ty => [$real:ty; $count:literal],)*) => { $(
        impl crate::arithmetic::Vector<$count> for $vector {
            #[inline]
            fn components(&self) -> [f64; $count] {
                let components: [$real; $count] = (*self).into();
                components.map(crate::arithmetic::Real::to_f64)
            }

            #[inline]
            fn from_components(components: [f64; $count]) -> $vector {
                let components: [$real; $count] = components.map(crate::arithmetic::Real::from_f64);
                components.into()
            }
        }
    )* };
}

#[cfg(feature = "glam")]
mod of_glam {
    use glam::{DVec2, DVec3, DVec4, Vec2, Vec3, Vec3A, Vec4};

    vectors! {
        Vec2 => [f32; 2], Vec3 => [f32; 3], Vec3A => [f32; 3], Vec4 => [f32; 4],
        DVec2 => [f64; 2], DVec3 => [f64; 3], DVec4 => [f64; 4],
    }
    wholes! { Vec3 => [f32; 3], Vec3A => [f32; 3], DVec3 => [f64; 3], }

    impl crate::arithmetic::Vector<4> for glam::Quat {
        #[inline]
        fn components(&self) -> [f64; 4] {
            self.to_array().map(f64::from)
        }

        #[inline]
        fn from_components(components: [f64; 4]) -> glam::Quat {
            glam::Quat::from_array(components.map(|component| component as f32))
        }
    }

    impl crate::arithmetic::Vector<4> for glam::DQuat {
        #[inline]
        fn components(&self) -> [f64; 4] {
            self.to_array()
        }

        #[inline]
        fn from_components(components: [f64; 4]) -> glam::DQuat {
            glam::DQuat::from_array(components)
        }
    }
}

#[cfg(feature = "mint")]
mod of_mint {
    use mint::{Point2, Point3, Quaternion, Vector2, Vector3, Vector4};

    vectors! {
        Vector2<f32> => [f32; 2], Vector3<f32> => [f32; 3], Vector4<f32> => [f32; 4],
        Vector2<f64> => [f64; 2], Vector3<f64> => [f64; 3], Vector4<f64> => [f64; 4],
        Point2<f32> => [f32; 2], Point3<f32> => [f32; 3], Point2<f64> => [f64; 2], Point3<f64> => [f64; 3],
    }
    wholes! {
        Vector3<f32> => [f32; 3], Vector3<f64> => [f64; 3], Point3<f32> => [f32; 3], Point3<f64> => [f64; 3],
        // In the order x, y, z, w.
        Quaternion<f32> => [f32; 4], Quaternion<f64> => [f64; 4],
    }
}
