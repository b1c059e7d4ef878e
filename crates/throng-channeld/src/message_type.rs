//! The meaning of a message's type number.

/// Login; the answer has the same type.
pub const AUTH: u32 = 1;
/// Create a channel.
pub const CREATE_CHANNEL: u32 = 3;
/// Remove a channel, or the notice of it.
pub const REMOVE_CHANNEL: u32 = 4;
/// List channels.
pub const LIST_CHANNEL: u32 = 5;
/// Subscribe, or the notice of it.
pub const SUB_TO_CHANNEL: u32 = 6;
/// Unsubscribe, or the notice of it.
pub const UNSUB_FROM_CHANNEL: u32 = 7;
/// A change of a channel's state.
pub const CHANNEL_DATA_UPDATE: u32 = 8;
/// End another connection.
pub const DISCONNECT: u32 = 9;
/// Create a server's cells.
pub const CREATE_SPATIAL_CHANNEL: u32 = 10;
/// Find the cells of positions.
pub const QUERY_SPATIAL_CHANNEL: u32 = 11;
/// Entities went to another cell.
pub const CHANNEL_DATA_HANDOVER: u32 = 12;
/// The table of cells.
pub const SPATIAL_REGIONS_UPDATE: u32 = 13;
/// Set what a connection wants to see.
pub const UPDATE_SPATIAL_INTEREST: u32 = 14;
/// Create an entity's channel.
pub const CREATE_ENTITY_CHANNEL: u32 = 15;
/// Add entities to a group.
pub const ENTITY_GROUP_ADD: u32 = 16;
/// Take entities out of a group.
pub const ENTITY_GROUP_REMOVE: u32 = 17;
/// All spatial servers are there.
pub const SPATIAL_CHANNELS_READY: u32 = 18;
/// A channel as a recovered server left it.
pub const RECOVERY_CHANNEL_DATA: u32 = 20;
/// All channels of a recovered server were sent.
pub const RECOVERY_END: u32 = 21;
/// A channel's owner was lost.
pub const CHANNEL_OWNER_LOST: u32 = 22;
/// A channel's owner came back.
pub const CHANNEL_OWNER_RECOVERED: u32 = 23;
/// Ours: a message was not done. For peers that have asked for it.
pub const REFUSED: u32 = 98;
/// Ask for the table of cells.
pub const DEBUG_GET_SPATIAL_REGIONS: u32 = 99;
/// The first type of a game's own messages; all above are theirs too.
pub const USER_SPACE_START: u32 = 100;
/// The last type that the shipped state machines let through.
pub const USER_SPACE_LAST: u32 = 65_535;

/// Unreal: raw bunches of its own protocol.
pub const UNREAL_LOW_LEVEL: u32 = 100;
/// Unreal: any message.
pub const UNREAL_ANY: u32 = 101;
/// Unreal: a remote procedure call.
pub const UNREAL_RPC: u32 = 102;
/// Unreal: an object appears.
pub const UNREAL_SPAWN: u32 = 103;
/// Unreal: an object is gone.
pub const UNREAL_DESTROY: u32 = 104;
/// Unreal: net ids are brought into line.
pub const UNREAL_SYNC_NET_ID: u32 = 107;
/// Unreal: a player leaves a server.
pub const UNREAL_SERVER_PLAYER_LEAVE: u32 = 202;

/// Whether a type belongs to the game.
pub const fn is_user(msg_type: u32) -> bool {
    msg_type >= USER_SPACE_START
}

/// A name for logs and metric labels; all user types share one.
pub const fn name(msg_type: u32) -> &'static str {
    match msg_type {
        AUTH => "auth",
        CREATE_CHANNEL => "create_channel",
        REMOVE_CHANNEL => "remove_channel",
        LIST_CHANNEL => "list_channel",
        SUB_TO_CHANNEL => "sub_to_channel",
        UNSUB_FROM_CHANNEL => "unsub_from_channel",
        CHANNEL_DATA_UPDATE => "channel_data_update",
        DISCONNECT => "disconnect",
        CREATE_SPATIAL_CHANNEL => "create_spatial_channel",
        QUERY_SPATIAL_CHANNEL => "query_spatial_channel",
        CHANNEL_DATA_HANDOVER => "channel_data_handover",
        SPATIAL_REGIONS_UPDATE => "spatial_regions_update",
        UPDATE_SPATIAL_INTEREST => "update_spatial_interest",
        CREATE_ENTITY_CHANNEL => "create_entity_channel",
        ENTITY_GROUP_ADD => "entity_group_add",
        ENTITY_GROUP_REMOVE => "entity_group_remove",
        SPATIAL_CHANNELS_READY => "spatial_channels_ready",
        RECOVERY_CHANNEL_DATA => "recovery_channel_data",
        RECOVERY_END => "recovery_end",
        CHANNEL_OWNER_LOST => "channel_owner_lost",
        CHANNEL_OWNER_RECOVERED => "channel_owner_recovered",
        REFUSED => "refused",
        DEBUG_GET_SPATIAL_REGIONS => "debug_get_spatial_regions",
        USER_SPACE_START.. => "user",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_numbers_are_unknown() {
        for unused in [0, 2, 19, 24, 97] {
            assert_eq!(name(unused), "unknown");
        }
        assert_eq!((name(AUTH), name(UNREAL_RPC), name(u32::MAX)), ("auth", "user", "user"));
        assert!(is_user(100) && !is_user(99));
    }
}
