//! The constants of a match: skeletons and the shapes of world parts.

use crate::capsule::{Capsule, CapsuleError};
use crate::convex::Convex;
use thiserror::Error;

/// Most bones of a skeleton.
pub const MAX_BONES: usize = 64;

/// Most skeletons, and most shapes, of a list of models.
pub const MAX_MODELS: usize = 256;

/// Longest name of a bone in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// A bone that can be hit.
///
/// Parents are not needed: poses give the transform of each bone in the coordinates of the body.
#[derive(Clone, Debug, PartialEq)]
pub struct Bone {
    /// For people: at most [`MAX_NAME_BYTES`] bytes without control characters.
    pub name: String,
    /// The game's own number, for example for head, body and legs. Comes back with a hit.
    pub zone: u8,
    /// In the coordinates of the bone.
    pub capsule: Capsule,
}

impl Bone {
    /// A bone with a name, a zone of the game's choice, and a capsule.
    pub fn new(name: &str, zone: u8, capsule: Capsule) -> Bone {
        Bone { name: name.to_owned(), zone, capsule }
    }
}

/// The bones of one kind of body.
#[derive(Clone, Debug, PartialEq)]
pub struct Skeleton {
    bones: Vec<Bone>,
    cores: Vec<Core>,
    /// For each bone the distance from the middle of its capsule to the farthest point of it, rounded up.
    reach_m: Vec<f32>,
}

/// A capsule as its middle and what lies on both sides of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Core {
    pub(crate) middle_m: [f32; 3],
    /// From the middle to one end.
    pub(crate) half_m: [f32; 3],
    pub(crate) radius_m: f32,
}

impl Core {
    fn new(capsule: &Capsule) -> Core {
        let (from, to) = (capsule.from_m, capsule.to_m);
        let middle_m = [0, 1, 2].map(|axis| (from[axis] + to[axis]) / 2.0);
        let half_m = [0, 1, 2].map(|axis| (to[axis] - from[axis]) / 2.0);
        Core { middle_m, half_m, radius_m: capsule.radius_m }
    }

    fn reach_m(&self) -> f32 {
        let [x, y, z] = self.half_m.map(f64::from);
        let reach_m = (x * x + y * y + z * z).sqrt() + f64::from(self.radius_m);
        (reach_m as f32).next_up()
    }
}

/// Why a skeleton or a model is refused. The caller, or the file, is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A skeleton needs 1 to [`MAX_BONES`] bones.
    #[error("a skeleton has {bones} bones: give it 1 to {MAX_BONES}")]
    BoneCount {
        /// Bones given.
        bones: usize,
    },
    /// A name is too long, or has a character that could forge a line of a log.
    #[error("the name of bone {bone} has more than {MAX_NAME_BYTES} bytes, or a control character")]
    Name {
        /// Its place in the list.
        bone: usize,
    },
    /// A capsule is not valid.
    #[error("bone {bone}: {error}")]
    Capsule {
        /// Its place in the list.
        bone: usize,
        /// The fault.
        error: CapsuleError,
    },
    /// There are [`MAX_MODELS`] already.
    #[error("there are {MAX_MODELS} skeletons or shapes already: use one of them again")]
    TooMany,
}

impl ModelError {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            ModelError::BoneCount { .. } => "model_bone_count",
            ModelError::Name { .. } => "model_name",
            ModelError::Capsule { .. } => "model_capsule",
            ModelError::TooMany => "model_too_many",
        }
    }
}

impl Skeleton {
    /// Checks a list of bones.
    ///
    /// # Errors
    /// One of [`ModelError`], for the first bone that is wrong.
    pub fn new(bones: Vec<Bone>) -> Result<Skeleton, ModelError> {
        if bones.is_empty() || bones.len() > MAX_BONES {
            return Err(ModelError::BoneCount { bones: bones.len() });
        }
        for (bone, given) in bones.iter().enumerate() {
            if given.name.len() > MAX_NAME_BYTES || given.name.chars().any(char::is_control) {
                return Err(ModelError::Name { bone });
            }
            given.capsule.check().map_err(|error| ModelError::Capsule { bone, error })?;
        }
        let cores: Vec<Core> = bones.iter().map(|bone| Core::new(&bone.capsule)).collect();
        let reach_m = cores.iter().map(Core::reach_m).collect();
        Ok(Skeleton { bones, cores, reach_m })
    }

    /// All bones, in the order of poses.
    pub fn bones(&self) -> &[Bone] {
        &self.bones
    }

    pub(crate) fn cores(&self) -> &[Core] {
        &self.cores
    }

    pub(crate) fn reach_m(&self) -> &[f32] {
        &self.reach_m
    }
}

/// The number of a skeleton.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SkeletonId(pub(crate) u16);

/// The number of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShapeId(pub(crate) u16);

/// Skeletons and shapes, shared by everything that uses them. Grows only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Models {
    skeletons: Vec<Skeleton>,
    shapes: Vec<Convex>,
}

impl Models {
    /// None.
    pub fn new() -> Models {
        Models::default()
    }

    /// Adds a skeleton; an equal one is not added twice.
    ///
    /// # Errors
    /// [`ModelError::TooMany`].
    pub fn add_skeleton(&mut self, skeleton: Skeleton) -> Result<SkeletonId, ModelError> {
        Ok(SkeletonId(place_of(&mut self.skeletons, skeleton)?))
    }

    /// Adds a shape; an equal one is not added twice.
    ///
    /// # Errors
    /// [`ModelError::TooMany`].
    pub fn add_shape(&mut self, shape: Convex) -> Result<ShapeId, ModelError> {
        Ok(ShapeId(place_of(&mut self.shapes, shape)?))
    }

    /// A skeleton of these models.
    ///
    /// # Panics
    /// If the id is of other models.
    pub fn skeleton(&self, id: SkeletonId) -> &Skeleton {
        &self.skeletons[usize::from(id.0)]
    }

    /// A shape of these models.
    ///
    /// # Panics
    /// If the id is of other models.
    pub fn shape(&self, id: ShapeId) -> &Convex {
        &self.shapes[usize::from(id.0)]
    }

    /// The name of a bone, or its number where there is no such bone.
    pub(crate) fn bone_name(&self, skeleton: SkeletonId, bone: u8) -> Option<&str> {
        let skeleton = self.skeletons.get(usize::from(skeleton.0))?;
        skeleton.bones.get(usize::from(bone)).map(|bone| bone.name.as_str()).filter(|name| !name.is_empty())
    }

    pub(crate) fn skeletons(&self) -> &[Skeleton] {
        &self.skeletons
    }

    pub(crate) fn shapes(&self) -> &[Convex] {
        &self.shapes
    }
}

fn place_of<T: PartialEq>(list: &mut Vec<T>, new: T) -> Result<u16, ModelError> {
    if let Some(place) = list.iter().position(|old| *old == new) {
        return Ok(place as u16);
    }
    if list.len() == MAX_MODELS {
        return Err(ModelError::TooMany);
    }
    list.push(new);
    Ok(list.len() as u16 - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_models_are_kept_once() {
        let mut models = Models::new();
        let skeleton = |radius_m| {
            Skeleton::new(vec![Bone::new("body", 0, Capsule::ball([0.0; 3], radius_m))]).expect("a valid skeleton")
        };
        let first = models.add_skeleton(skeleton(0.5)).unwrap();
        let second = models.add_skeleton(skeleton(0.6)).unwrap();
        assert_eq!(models.add_skeleton(skeleton(0.5)), Ok(first));
        assert_ne!(first, second);
        assert_eq!(models.skeleton(second).bones()[0].capsule.radius_m, 0.6);
        for size in 1..=MAX_MODELS {
            models.add_shape(Convex::cuboid([size as f64 / 4.0, 1.0, 1.0]).unwrap()).unwrap();
        }
        assert_eq!(models.add_shape(Convex::cuboid([0.1; 3]).unwrap()), Err(ModelError::TooMany));
    }

    #[test]
    fn wrong_skeletons_are_refused() {
        let capsule = |from: f32, radius_m| Capsule::new([from, 0.0, 0.0], [0.0; 3], radius_m);
        let refused = |bones: Vec<Bone>| Skeleton::new(bones).unwrap_err().tag();
        assert_eq!(refused(Vec::new()), "model_bone_count");
        assert_eq!(refused(vec![Bone::new("", 0, capsule(0.0, 1.0)); MAX_BONES + 1]), "model_bone_count");
        assert_eq!(refused(vec![Bone::new(&"x".repeat(65), 0, capsule(0.0, 1.0))]), "model_name");
        assert_eq!(refused(vec![Bone::new("head\nhit", 0, capsule(0.0, 1.0))]), "model_name");
        for wrong in [capsule(f32::NAN, 1.0), capsule(0.0, f32::NAN), capsule(0.0, 0.0), capsule(17.0, 1.0)] {
            assert_eq!(refused(vec![Bone::new("", 0, wrong)]), "model_capsule", "{wrong:?}");
        }
    }
}
