//! A mask has 64 bits.

use throng_schema::Replicate;

#[derive(Default, Replicate)]
struct Many {
    #[replicate(bool)]
    f0: bool,
    #[replicate(bool)]
    f1: bool,
    #[replicate(bool)]
    f2: bool,
    #[replicate(bool)]
    f3: bool,
    #[replicate(bool)]
    f4: bool,
    #[replicate(bool)]
    f5: bool,
    #[replicate(bool)]
    f6: bool,
    #[replicate(bool)]
    f7: bool,
    #[replicate(bool)]
    f8: bool,
    #[replicate(bool)]
    f9: bool,
    #[replicate(bool)]
    f10: bool,
    #[replicate(bool)]
    f11: bool,
    #[replicate(bool)]
    f12: bool,
    #[replicate(bool)]
    f13: bool,
    #[replicate(bool)]
    f14: bool,
    #[replicate(bool)]
    f15: bool,
    #[replicate(bool)]
    f16: bool,
    #[replicate(bool)]
    f17: bool,
    #[replicate(bool)]
    f18: bool,
    #[replicate(bool)]
    f19: bool,
    #[replicate(bool)]
    f20: bool,
    #[replicate(bool)]
    f21: bool,
    #[replicate(bool)]
    f22: bool,
    #[replicate(bool)]
    f23: bool,
    #[replicate(bool)]
    f24: bool,
    #[replicate(bool)]
    f25: bool,
    #[replicate(bool)]
    f26: bool,
    #[replicate(bool)]
    f27: bool,
    #[replicate(bool)]
    f28: bool,
    #[replicate(bool)]
    f29: bool,
    #[replicate(bool)]
    f30: bool,
    #[replicate(bool)]
    f31: bool,
    #[replicate(bool)]
    f32: bool,
    #[replicate(bool)]
    f33: bool,
    #[replicate(bool)]
    f34: bool,
    #[replicate(bool)]
    f35: bool,
    #[replicate(bool)]
    f36: bool,
    #[replicate(bool)]
    f37: bool,
    #[replicate(bool)]
    f38: bool,
    #[replicate(bool)]
    f39: bool,
    #[replicate(bool)]
    f40: bool,
    #[replicate(bool)]
    f41: bool,
    #[replicate(bool)]
    f42: bool,
    #[replicate(bool)]
    f43: bool,
    #[replicate(bool)]
    f44: bool,
    #[replicate(bool)]
    f45: bool,
    #[replicate(bool)]
    f46: bool,
    #[replicate(bool)]
    f47: bool,
    #[replicate(bool)]
    f48: bool,
    #[replicate(bool)]
    f49: bool,
    #[replicate(bool)]
    f50: bool,
    #[replicate(bool)]
    f51: bool,
    #[replicate(bool)]
    f52: bool,
    #[replicate(bool)]
    f53: bool,
    #[replicate(bool)]
    f54: bool,
    #[replicate(bool)]
    f55: bool,
    #[replicate(bool)]
    f56: bool,
    #[replicate(bool)]
    f57: bool,
    #[replicate(bool)]
    f58: bool,
    #[replicate(bool)]
    f59: bool,
    #[replicate(bool)]
    f60: bool,
    #[replicate(bool)]
    f61: bool,
    #[replicate(bool)]
    f62: bool,
    #[replicate(bool)]
    f63: bool,
    #[replicate(bool)]
    f64: bool,
}

fn main() {}
