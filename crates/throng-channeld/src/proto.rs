//! Message types, generated from the `.proto` files of this crate.
//!
//! Those of channeld itself are re-exported here, so that most users write `proto::AuthMessage`. Byte fields are
//! [`bytes::Bytes`]: decoding from `Bytes` copies no body. [`prost::Name`] gives each message its type URL.
#![allow(missing_docs)] // generated: the .proto files explain what the names do not

/// Package `channeldpb`.
pub mod channeldpb {
    include!(concat!(env!("OUT_DIR"), "/channeldpb.rs"));
}

/// Package `unrealpb`: what the Unreal plugin sends.
pub mod unrealpb {
    include!(concat!(env!("OUT_DIR"), "/unrealpb.rs"));
}

/// Package `replaypb`: recorded sessions.
pub mod replaypb {
    include!(concat!(env!("OUT_DIR"), "/replaypb.rs"));
}

/// Google's own packages.
pub mod google {
    /// Package `google.protobuf`, as far as it is used here.
    pub mod protobuf {
        include!(concat!(env!("OUT_DIR"), "/google.protobuf.rs"));
    }
}

pub use channeldpb::*;
pub use google::protobuf::Any;

/// The encoded `google.protobuf.FileDescriptorSet` of all files above, imports included.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

impl Any {
    /// Packs a message under its type URL. Allocates both parts.
    pub fn pack<M: prost::Name>(message: &M) -> Any {
        Any { type_url: M::type_url(), value: message.encode_to_vec().into() }
    }

    /// The full name of the type, as `chatpb.ChatChannelData`: what follows the last slash of the type URL.
    pub fn full_name(&self) -> &str {
        self.type_url.rsplit('/').next().unwrap_or_default()
    }
}
