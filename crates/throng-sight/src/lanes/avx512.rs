//! The tests with AVX-512: the near and far sides of eight boxes in one register.

use std::arch::x86_64::{__m128i, __m512, _CMP_LE_OQ};

use bytemuck::cast;
use pulp::x86::V4;

use super::{Lanes, Packet, Prepared, SLACK, avx2};
use crate::format::{BLOCK_LANES, Block, Node, WIDTH};

/// The proof that the processor has the instructions.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(pub(crate) V4);

/// The order of sixteen bytes that swaps their halves, and the order that does not.
const ORDERS: [[u8; 16]; 2] =
    [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], [8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7]];

impl Lanes for Avx512 {
    /// Far distances are computed negated: so one maximum serves both halves.
    #[inline(always)]
    fn boxes(self, node: &Node, ray: &Prepared, limit: f32) -> (u32, [f32; WIDTH]) {
        let (f, avx) = (self.0.avx512f, self.0.avx);
        const SIGNS: [f32; 16] =
            [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0];
        let signs = cast(SIGNS);
        // The start in the lower half, the negated limit in the upper one.
        let mut ways = f._mm512_mask_blend_ps(0xff00, f._mm512_set1_ps(ray.start), f._mm512_set1_ps(-limit));
        for axis in 0..3 {
            let inverse = f._mm512_mul_ps(f._mm512_set1_ps(ray.inverse[axis]), signs);
            let factor = f._mm512_mul_ps(f._mm512_set1_ps(node.step[axis]), inverse);
            let shift = f._mm512_mul_ps(f._mm512_set1_ps(ray.shift[axis]), signs);
            let offset = f._mm512_fmadd_ps(f._mm512_set1_ps(node.origin[axis]), inverse, shift);
            let bytes: __m128i = cast(node.planes[axis]);
            let bytes = self.0.ssse3._mm_shuffle_epi8(bytes, cast(ORDERS[usize::from(ray.goes_down[axis])]));
            let planes = f._mm512_cvtepi32_ps(f._mm512_cvtepu8_epi32(bytes));
            ways = f._mm512_max_ps(f._mm512_fmadd_ps(planes, factor, offset), ways);
        }
        let near = f._mm512_castps512_ps256(ways);
        let far = avx._mm256_mul_ps(self.0.avx512dq._mm512_extractf32x8_ps::<1>(ways), avx._mm256_set1_ps(-SLACK));
        let met = avx._mm256_cmp_ps::<_CMP_LE_OQ>(near, far);
        (avx._mm256_movemask_ps(met) as u32, cast(near))
    }

    #[inline(always)]
    fn boxes_of_packet(self, node: &Node, packet: &Packet, rays: u32) -> [u32; WIDTH] {
        let f = self.0.avx512f;
        let planes = avx2::places(*self.0, node);
        let (start, end): (__m512, __m512) = (cast(packet.start), cast(packet.end));
        let inverse: [__m512; 3] = cast(packet.inverse);
        let shift: [__m512; 3] = cast(packet.shift);
        let mut masks = [0; WIDTH];
        for child in 0..WIDTH {
            let (mut near, mut far) = (start, end);
            for axis in 0..3 {
                let low = f._mm512_set1_ps(planes[axis][0][child]);
                let high = f._mm512_set1_ps(planes[axis][1][child]);
                let a = f._mm512_fmadd_ps(low, inverse[axis], shift[axis]);
                let b = f._mm512_fmadd_ps(high, inverse[axis], shift[axis]);
                near = f._mm512_max_ps(f._mm512_min_ps(a, b), near);
                far = f._mm512_min_ps(f._mm512_max_ps(a, b), far);
            }
            let far = f._mm512_mul_ps(far, f._mm512_set1_ps(SLACK));
            masks[child] = u32::from(f._mm512_cmp_ps_mask::<_CMP_LE_OQ>(near, far)) & rays;
        }
        masks
    }

    #[inline(always)]
    fn triangles(self, block: &Block, ray: &Prepared, limit: f32) -> (u32, [f32; BLOCK_LANES]) {
        avx2::triangles(*self.0, block, ray, limit)
    }
}
