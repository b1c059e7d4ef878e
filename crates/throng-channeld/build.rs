//! Generates the message types from our own `.proto` files, without a protobuf compiler on the user's machine.

use std::path::PathBuf;
use std::{env, fs};

const FILES: [&str; 3] = ["channeld.proto", "unreal.proto", "replay.proto"];

fn main() {
    println!("cargo::rerun-if-changed=proto");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names a folder"));
    let mut compiler = protox::Compiler::new(["proto"]).expect("the folder is there");
    compiler.include_imports(true).include_source_info(true);
    compiler.open_files(FILES).unwrap_or_else(|error| panic!("{error:?}"));
    let descriptors = compiler.encode_file_descriptor_set();
    fs::write(out.join("descriptors.bin"), descriptors).expect("the folder can be written to");
    prost_build::Config::new()
        .bytes(["."])
        .btree_map(["."])
        .compile_well_known_types()
        .disable_comments([".google.protobuf"])
        .enable_type_names()
        .type_name_domain(["."], "type.googleapis.com")
        .compile_fds(compiler.file_descriptor_set())
        .expect("the files are sound");
}
