use throng_schema::Replicate;

#[derive(Default, Replicate)]
struct Inner {
    #[replicate(position(step = 0.1))]
    position: [f32; 3],
    #[replicate(bool, owner_only)]
    is_secret: bool,
}

#[derive(Default, Replicate)]
struct Shapes {
    #[replicate(nested)]
    array: [Inner; 2],
    #[replicate(nested)]
    optional: Option<Inner>,
    #[replicate(position(step = 0.1))]
    perhaps: Option<[f32; 3]>,
    #[replicate(bool)]
    unbounded: Vec<bool>,
    #[replicate(bool, list(max = 0))]
    empty: Vec<bool>,
    #[replicate(bool, list)]
    bare: Vec<bool>,
    #[replicate(bool, list(max = 3))]
    single: bool,
    #[replicate(text(max_bytes = 3), list(max = 3))]
    texts: Vec<String>,
    #[replicate(integer, list(max = 3))]
    wrong: Vec<bool>,
}

fn main() {}
