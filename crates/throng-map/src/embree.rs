//! Embree 3 by Intel, loaded at run time: for comparison of speed and of hits, never needed.
//!
//! On Debian: `apt-get install libembree3-3`.
#![allow(unsafe_code, reason = "functions of a C library")]

use std::ffi::{c_char, c_void};
use std::mem::ManuallyDrop;
use std::sync::Arc;

use libloading::Library;
use throng_sight::{Hit, Mesh, Ray, TriangleId};

/// The names under which the library is looked for.
const NAMES: [&str; 3] = ["libembree3.so.3", "libembree3.dylib", "embree3.dll"];

type Device = *mut c_void;
type SceneHandle = *mut c_void;
type Geometry = *mut c_void;

/// `RTCRay`: 48 bytes.
#[derive(Clone, Copy, Default)]
#[repr(C, align(16))]
struct RtcRay {
    origin: [f32; 3],
    near: f32,
    direction: [f32; 3],
    time: f32,
    far: f32,
    mask: u32,
    id: u32,
    flags: u32,
}

/// `RTCRayHit`: 80 bytes.
#[derive(Clone, Copy, Default)]
#[repr(C, align(16))]
struct RtcRayHit {
    ray: RtcRay,
    normal: [f32; 3],
    uv: [f32; 2],
    primitive: u32,
    geometry: u32,
    instance: u32,
}

/// `RTCIntersectContext`, with room for fields that some builds add.
#[repr(C, align(16))]
struct Context {
    flags: u32,
    filter: *const c_void,
    instance: u32,
    more: [u32; 8],
}

impl Context {
    fn new() -> Context {
        Context { flags: 0, filter: std::ptr::null(), instance: u32::MAX, more: [u32::MAX; 8] }
    }
}

const GEOMETRY_TRIANGLES: u32 = 0;
const BUFFER_INDEX: u32 = 0;
const BUFFER_VERTEX: u32 = 1;
const FORMAT_UINT3: u32 = 0x5003;
const FORMAT_FLOAT3: u32 = 0x9003;
/// `RTC_SCENE_FLAG_ROBUST`: watertight, as Throng's own tests are.
const SCENE_ROBUST: u32 = 1 << 2;

struct Functions {
    new_scene: unsafe extern "C" fn(Device) -> SceneHandle,
    set_flags: unsafe extern "C" fn(SceneHandle, u32),
    new_geometry: unsafe extern "C" fn(Device, u32) -> Geometry,
    new_buffer: unsafe extern "C" fn(Geometry, u32, u32, u32, usize, usize) -> *mut c_void,
    commit_geometry: unsafe extern "C" fn(Geometry),
    attach: unsafe extern "C" fn(SceneHandle, Geometry) -> u32,
    release_geometry: unsafe extern "C" fn(Geometry),
    commit_scene: unsafe extern "C" fn(SceneHandle),
    intersect: unsafe extern "C" fn(SceneHandle, *mut Context, *mut RtcRayHit),
    occluded: unsafe extern "C" fn(SceneHandle, *mut Context, *mut RtcRay),
    release_scene: unsafe extern "C" fn(SceneHandle),
    release_device: unsafe extern "C" fn(Device),
}

/// The library with a device.
#[derive(Clone)]
pub struct Embree(Arc<Loaded>);

struct Loaded {
    functions: Functions,
    device: Device,
    /// Never unloaded: threads of the library may run its code after its last scene has gone.
    _library: ManuallyDrop<Library>,
}

// SAFETY: Embree's devices may be used from any thread, and by several at once (its manual, section "Embree API").
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

/// Why there is no Embree.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbreeError {
    /// The library is not installed, or lacks a function.
    #[error("Embree 3 cannot be loaded: {0}; on Debian: apt-get install libembree3-3")]
    NotLoaded(libloading::Error),
    /// The library refuses to work.
    #[error("Embree 3 makes no device")]
    NoDevice,
}

impl Embree {
    /// Loads the library.
    ///
    /// # Errors
    /// If it is not installed.
    pub fn load() -> Result<Embree, EmbreeError> {
        let mut last = None;
        for name in NAMES {
            // SAFETY: Embree's initialisation has no conditions.
            match unsafe { Library::new(name) } {
                Ok(library) => return Embree::with(library),
                Err(error) => last = last.or(Some(error)),
            }
        }
        Err(last.map_or(EmbreeError::NoDevice, EmbreeError::NotLoaded))
    }

    fn with(library: Library) -> Result<Embree, EmbreeError> {
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the types are those of Embree 3's header `rtcore.h`.
                *unsafe { library.get($name) }.map_err(EmbreeError::NotLoaded)?
            };
        }
        let new_device: unsafe extern "C" fn(*const c_char) -> Device = function!(b"rtcNewDevice\0");
        let functions = Functions {
            new_scene: function!(b"rtcNewScene\0"),
            set_flags: function!(b"rtcSetSceneFlags\0"),
            new_geometry: function!(b"rtcNewGeometry\0"),
            new_buffer: function!(b"rtcSetNewGeometryBuffer\0"),
            commit_geometry: function!(b"rtcCommitGeometry\0"),
            attach: function!(b"rtcAttachGeometry\0"),
            release_geometry: function!(b"rtcReleaseGeometry\0"),
            commit_scene: function!(b"rtcCommitScene\0"),
            intersect: function!(b"rtcIntersect1\0"),
            occluded: function!(b"rtcOccluded1\0"),
            release_scene: function!(b"rtcReleaseScene\0"),
            release_device: function!(b"rtcReleaseDevice\0"),
        };
        // SAFETY: the text is a constant that ends in a zero.
        let device = unsafe { new_device(c"threads=1".as_ptr()) };
        if device.is_null() {
            return Err(EmbreeError::NoDevice);
        }
        Ok(Embree(Arc::new(Loaded { functions, device, _library: ManuallyDrop::new(library) })))
    }

    /// A scene of the triangles of a mesh. `is_robust`: with Embree's watertight tests instead of its usual ones.
    ///
    /// # Panics
    /// If the mesh names a corner that it does not have.
    pub fn scene(&self, mesh: &Mesh, is_robust: bool) -> Scene {
        let (corners, positions) = (mesh.triangles.as_slice(), mesh.positions.as_slice());
        let is_complete = corners.as_flattened().iter().all(|corner| (*corner as usize) < positions.len());
        assert!(is_complete, "a corner has no position");
        let Functions { new_scene, set_flags, new_geometry, new_buffer, commit_geometry, .. } = self.0.functions;
        let Functions { attach, release_geometry, commit_scene, .. } = self.0.functions;
        // SAFETY: the calls are in the order of Embree's manual. Each buffer has the length that is written to it: the
        // library allocates it with `count` elements of the stride that is given.
        let scene = unsafe {
            let scene = new_scene(self.0.device);
            if is_robust {
                set_flags(scene, SCENE_ROBUST);
            }
            let geometry = new_geometry(self.0.device, GEOMETRY_TRIANGLES);
            let places = new_buffer(geometry, BUFFER_VERTEX, 0, FORMAT_FLOAT3, 12, positions.len()).cast::<[f32; 3]>();
            let numbers = new_buffer(geometry, BUFFER_INDEX, 0, FORMAT_UINT3, 12, corners.len()).cast::<[u32; 3]>();
            assert!(!places.is_null() && !numbers.is_null(), "Embree has no memory");
            for (place, position) in positions.iter().enumerate() {
                places.add(place).write(position.to_array());
            }
            numbers.copy_from_nonoverlapping(corners.as_ptr(), corners.len());
            commit_geometry(geometry);
            attach(scene, geometry);
            release_geometry(geometry);
            commit_scene(scene);
            scene
        };
        Scene { embree: self.clone(), scene }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: scenes hold the device by reference count, so this is the last use.
        unsafe { (self.functions.release_device)(self.device) }
    }
}

/// Triangles in Embree's own tree.
pub struct Scene {
    embree: Embree,
    scene: SceneHandle,
}

// SAFETY: a committed scene is only read; queries may run on any number of threads.
unsafe impl Send for Scene {}
// SAFETY: as above.
unsafe impl Sync for Scene {}

impl Scene {
    /// The nearest triangle, by its number in the mesh.
    pub fn closest(&self, ray: &Ray) -> Option<Hit> {
        const NONE: u32 = u32::MAX;
        let mut query = RtcRayHit { ray: rtc(ray), geometry: NONE, primitive: NONE, ..RtcRayHit::default() };
        // SAFETY: the scene is committed, and the structures are laid out as in Embree's header.
        unsafe { (self.embree.0.functions.intersect)(self.scene, &mut Context::new(), &mut query) };
        (query.geometry != NONE).then_some(Hit { distance_m: query.ray.far, triangle: TriangleId(query.primitive) })
    }

    /// Whether a triangle is on the ray.
    pub fn is_blocked(&self, ray: &Ray) -> bool {
        let mut query = rtc(ray);
        // SAFETY: as above.
        unsafe { (self.embree.0.functions.occluded)(self.scene, &mut Context::new(), &mut query) };
        query.far < 0.0
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // SAFETY: no query runs: they borrow the scene.
        unsafe { (self.embree.0.functions.release_scene)(self.scene) }
    }
}

fn rtc(ray: &Ray) -> RtcRay {
    RtcRay {
        origin: ray.origin().to_array(),
        near: ray.start_m(),
        direction: ray.direction().to_array(),
        far: ray.end_m(),
        mask: u32::MAX,
        ..RtcRay::default()
    }
}
