//! The tests with AVX2 and FMA: eight boxes, or four triangles.

use std::arch::x86_64::{__m128, __m256, _CMP_EQ_OQ, _CMP_GE_OQ, _CMP_LE_OQ};

use bytemuck::cast;
use pulp::x86::V3;

use super::{Lanes, Prepared, SLACK};
use crate::format::{BLOCK_LANES, Block, Node, WIDTH};

/// The proof that the processor has the instructions.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(pub(crate) V3);

/// For each set of children, their numbers.
static NUMBERS: [[u8; WIDTH]; 1 << WIDTH] = {
    let mut numbers = [[0; WIDTH]; 1 << WIDTH];
    let mut set = 0;
    while set < 1 << WIDTH {
        let (mut child, mut count) = (0, 0);
        while child < WIDTH {
            if set >> child & 1 == 1 {
                numbers[set][count] = child as u8;
                count += 1;
            }
            child += 1;
        }
        set += 1;
    }
    numbers
};

impl Lanes for Avx2 {
    #[inline(always)]
    fn boxes(self, node: &Node, ray: &Prepared, limit: f32) -> (u32, [f32; WIDTH]) {
        let (avx, fma) = (self.0.avx, self.0.fma);
        let mut near = avx._mm256_set1_ps(ray.start);
        let mut far = avx._mm256_set1_ps(limit);
        for axis in 0..3 {
            let inverse = avx._mm256_set1_ps(ray.inverse[axis]);
            let factor = avx._mm256_mul_ps(avx._mm256_set1_ps(node.step[axis]), inverse);
            let origin = avx._mm256_set1_ps(node.origin[axis]);
            let offset = fma._mm256_fmadd_ps(origin, inverse, avx._mm256_set1_ps(ray.shift[axis]));
            let planes = &node.planes[axis];
            let side = usize::from(ray.goes_down[axis]);
            let enter = fma._mm256_fmadd_ps(numbers(self.0, planes[side]), factor, offset);
            let leave = fma._mm256_fmadd_ps(numbers(self.0, planes[1 - side]), factor, offset);
            near = avx._mm256_max_ps(enter, near);
            far = avx._mm256_min_ps(leave, far);
        }
        let far = avx._mm256_mul_ps(far, avx._mm256_set1_ps(SLACK));
        let met = avx._mm256_cmp_ps::<_CMP_LE_OQ>(near, far);
        (avx._mm256_movemask_ps(met) as u32, cast(near))
    }

    #[inline(always)]
    fn met<const MASKED: bool>(self, node: &Node, ray: &Prepared, limit: f32, layers: u16) -> ([u32; WIDTH], usize) {
        let (mut mask, _) = self.boxes(node, ray, limit);
        if MASKED {
            mask &= self.layers_of_children(node, layers);
        }
        let numbers = NUMBERS[(mask & 0xff) as usize];
        let numbers = self.0.avx2._mm256_cvtepu8_epi32(cast([u64::from_le_bytes(numbers), 0]));
        let met = self.0.avx2._mm256_permutevar8x32_epi32(cast(node.children), numbers);
        (cast(met), mask.count_ones() as usize)
    }

    #[inline(always)]
    fn triangles(self, block: &Block, ray: &Prepared, limit: f32) -> (u32, [f32; BLOCK_LANES]) {
        triangles(self.0, block, ray, limit)
    }
}

/// Eight bytes as numbers.
#[inline(always)]
fn numbers(simd: V3, bytes: [u8; WIDTH]) -> __m256 {
    let whole = simd.avx2._mm256_cvtepu8_epi32(cast([u64::from_le_bytes(bytes), 0]));
    simd.avx._mm256_cvtepi32_ps(whole)
}

/// One corner of four triangles relative to a ray: across it twice, and along its main axis.
type Corner = (__m128, __m128, __m128);

#[inline(always)]
fn relative(simd: V3, corner: &[[f32; BLOCK_LANES]; 3], ray: &Prepared) -> Corner {
    let sse = simd.sse;
    let [x, y, z] = ray.axes;
    let along = sse._mm_sub_ps(cast(corner[z as usize]), sse._mm_set1_ps(ray.turned[2]));
    let first = sse._mm_sub_ps(cast(corner[x as usize]), sse._mm_set1_ps(ray.turned[0]));
    let second = sse._mm_sub_ps(cast(corner[y as usize]), sse._mm_set1_ps(ray.turned[1]));
    let first = sse._mm_sub_ps(first, sse._mm_mul_ps(sse._mm_set1_ps(ray.shear[0]), along));
    let second = sse._mm_sub_ps(second, sse._mm_mul_ps(sse._mm_set1_ps(ray.shear[1]), along));
    (first, second, along)
}

#[inline(always)]
fn area_of(simd: V3, p: Corner, q: Corner) -> __m128 {
    simd.sse._mm_sub_ps(simd.sse._mm_mul_ps(p.0, q.1), simd.sse._mm_mul_ps(p.1, q.0))
}

/// As the plain twin does it, step by step.
#[inline(always)]
pub(super) fn triangles(simd: V3, block: &Block, ray: &Prepared, limit: f32) -> (u32, [f32; BLOCK_LANES]) {
    let (sse, avx) = (simd.sse, simd.avx);
    let a = relative(simd, &block.corners[0], ray);
    let b = relative(simd, &block.corners[1], ray);
    let c = relative(simd, &block.corners[2], ray);
    let (u, v, w) = (area_of(simd, c, b), area_of(simd, a, c), area_of(simd, b, a));
    let zero = sse._mm_setzero_ps();
    let lowest = sse._mm_min_ps(sse._mm_min_ps(u, v), w);
    let highest = sse._mm_max_ps(sse._mm_max_ps(u, v), w);
    let is_front = avx._mm_cmp_ps::<_CMP_GE_OQ>(lowest, zero);
    let is_back = avx._mm_cmp_ps::<_CMP_LE_OQ>(highest, zero);
    let is_inside = sse._mm_or_ps(is_front, is_back);
    if sse._mm_movemask_ps(is_inside) == 0 {
        return (0, [0.0; BLOCK_LANES]);
    }
    let area = sse._mm_add_ps(sse._mm_add_ps(u, v), w);
    let sum = sse._mm_add_ps(sse._mm_mul_ps(u, a.2), sse._mm_mul_ps(v, b.2));
    let along = sse._mm_add_ps(sum, sse._mm_mul_ps(w, c.2));
    let distance = sse._mm_div_ps(sse._mm_mul_ps(sse._mm_set1_ps(ray.shear[2]), along), area);
    let is_flat = avx._mm_cmp_ps::<_CMP_EQ_OQ>(area, zero);
    let is_inside = sse._mm_andnot_ps(is_flat, is_inside);
    let margin = sse._mm_set1_ps(ray.margin);
    let (mut enter, mut leave) = (sse._mm_set1_ps(f32::NEG_INFINITY), sse._mm_set1_ps(f32::INFINITY));
    for axis in 0..3 {
        let a: __m128 = cast(block.corners[0][axis]);
        let b: __m128 = cast(block.corners[1][axis]);
        let c: __m128 = cast(block.corners[2][axis]);
        let low = sse._mm_sub_ps(sse._mm_min_ps(sse._mm_min_ps(a, b), c), margin);
        let high = sse._mm_add_ps(sse._mm_max_ps(sse._mm_max_ps(a, b), c), margin);
        let (origin, inverse) = (sse._mm_set1_ps(ray.origin[axis]), sse._mm_set1_ps(ray.inverse[axis]));
        let low = sse._mm_mul_ps(sse._mm_sub_ps(low, origin), inverse);
        let high = sse._mm_mul_ps(sse._mm_sub_ps(high, origin), inverse);
        enter = sse._mm_max_ps(sse._mm_min_ps(low, high), enter);
        leave = sse._mm_min_ps(sse._mm_max_ps(low, high), leave);
    }
    let distance = sse._mm_min_ps(sse._mm_max_ps(distance, enter), leave);
    let is_met = avx._mm_cmp_ps::<_CMP_LE_OQ>(enter, leave);
    let is_late = avx._mm_cmp_ps::<_CMP_GE_OQ>(distance, sse._mm_set1_ps(ray.start));
    let is_early = avx._mm_cmp_ps::<_CMP_LE_OQ>(distance, sse._mm_set1_ps(limit));
    let is_in_range = sse._mm_and_ps(is_late, is_early);
    let is_hit = sse._mm_and_ps(sse._mm_and_ps(is_inside, is_met), is_in_range);
    (sse._mm_movemask_ps(is_hit) as u32, cast(distance))
}
