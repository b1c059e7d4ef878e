//! The tests with AVX-512: the near and far sides of eight boxes in one register.

use std::arch::x86_64::{__m128i, __m256, _CMP_LE_OQ};

use bytemuck::cast;
use pulp::x86::V4;

use super::{Lanes, Prepared, SLACK, avx2};
use crate::format::{BLOCK_LANES, Block, Node, WIDTH};

/// The proof that the processor has the instructions.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(pub(crate) V4);

/// The order of sixteen bytes as they are. With bit 3 of each number changed, their halves swap.
const ORDER: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

impl Avx512 {
    /// The children that count, one bit each, and how far they are.
    #[inline(always)]
    fn children<const MASKED: bool>(self, node: &Node, ray: &Prepared, limit: f32, layers: u16) -> (u8, __m256) {
        let (f, avx) = (self.0.avx512f, self.0.avx);
        let (mut most, mut least) = (f._mm512_set1_ps(ray.start), f._mm512_set1_ps(limit));
        for axis in 0..3 {
            let inverse = f._mm512_set1_ps(ray.inverse[axis]);
            let factor = f._mm512_mul_ps(f._mm512_set1_ps(node.step[axis]), inverse);
            let offset =
                f._mm512_fmadd_ps(f._mm512_set1_ps(node.origin[axis]), inverse, f._mm512_set1_ps(ray.shift[axis]));
            let bytes: __m128i = cast(node.planes[axis]);
            let order = self.0.sse2._mm_xor_si128(cast(ORDER), self.0.sse2._mm_set1_epi32(ray.swap[axis] as i32));
            let bytes = self.0.ssse3._mm_shuffle_epi8(bytes, order);
            let planes = f._mm512_cvtepi32_ps(f._mm512_cvtepu8_epi32(bytes));
            let ways = f._mm512_fmadd_ps(planes, factor, offset);
            most = f._mm512_max_ps(ways, most);
            least = f._mm512_min_ps(ways, least);
        }
        let near = f._mm512_castps512_ps256(most);
        let far = avx._mm256_mul_ps(self.0.avx512dq._mm512_extractf32x8_ps::<1>(least), avx._mm256_set1_ps(SLACK));
        let mut mask = f._mm256_cmp_ps_mask::<_CMP_LE_OQ>(near, far);
        if MASKED {
            let wanted = self.0.sse2._mm_set1_epi16(layers as i16);
            mask &= self.0.avx512bw._mm_test_epi16_mask(cast(node.layers), wanted);
        }
        (mask, near)
    }
}

impl Lanes for Avx512 {
    #[inline(always)]
    fn boxes(self, node: &Node, ray: &Prepared, limit: f32) -> (u32, [f32; WIDTH]) {
        let (mask, near) = self.children::<false>(node, ray, limit, u16::MAX);
        (u32::from(mask), cast(near))
    }

    #[inline(always)]
    fn met<const MASKED: bool>(self, node: &Node, ray: &Prepared, limit: f32, layers: u16) -> ([u32; WIDTH], usize) {
        let (mask, _) = self.children::<MASKED>(node, ray, limit, layers);
        let met = self.0.avx512f._mm256_maskz_compress_epi32(mask, cast(node.children));
        (cast(met), mask.count_ones() as usize)
    }

    #[inline(always)]
    fn triangles(self, block: &Block, ray: &Prepared, limit: f32) -> (u32, [f32; BLOCK_LANES]) {
        avx2::triangles(*self.0, block, ray, limit)
    }
}
