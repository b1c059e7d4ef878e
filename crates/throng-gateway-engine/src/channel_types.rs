//! Settings of each channel type, from channeld's JSON files.
//!
//! ```json
//! { "1": { "TickIntervalMs": 20, "DefaultFanOutIntervalMs": 20, "DefaultFanOutDelayMs": 0,
//!          "RemoveChannelAfterOwnerRemoved": false, "SendOwnerLostAndRecovered": true,
//!          "ACLSettings": { "Sub": 3, "Unsub": 3, "Remove": 0 },
//!          "DataMsgFullName": "chatpb.ChatChannelData",
//!          "MergeMapEntries": true, "PositionPath": "body.position", "PositionUp": "Y" } }
//! ```
//!
//! The last three are ours. `MergeMapEntries`: messages in maps are merged field by field (true) or replaced (false);
//! without it, as the type of the state has it. `PositionPath`: where entities of this type say where they are, as names or
//! numbers of fields from the outermost message inwards; `unreal` for the location of the first actor in the layout of
//! Unreal's plugin, of types that no descriptor set names. `PositionUp`: the axis of that vector that points up, `Y` (the
//! usual one) or `Z`.
//!
//! The keys are numbers of channel types. A type that the file does not name has the settings of type 1, GLOBAL, and
//! its access rights with them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config_file::{Document, FileError, Node, Note};
use crate::limits::Limits;

/// The number of the GLOBAL type.
const GLOBAL: i32 = 1;

/// Longest name of a message type, in bytes.
const MAX_NAME_BYTES: usize = 512;

/// Most channel types of a file.
const MAX_TYPES: usize = 1_024;

const HIFI: &str = include_str!("../config/channel_settings_hifi.json");
const LOFI: &str = include_str!("../config/channel_settings_lofi.json");
const UE: &str = include_str!("../config/channel_settings_ue.json");
const TPS: &str = include_str!("../config/channel_settings_tps.json");

/// An access level: which peers may act on *others* in a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessLevel {
    /// 0: nobody.
    #[default]
    Nobody,
    /// 1: the owner of the channel.
    Owner,
    /// 2: the owner of the channel, and that of GLOBAL.
    OwnerOrGlobalOwner,
    /// 3: everybody.
    Anybody,
}

/// The access levels for subscribing, unsubscribing and removing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    /// The access level for subscribing others.
    pub sub: AccessLevel,
    /// The access level for unsubscribing others.
    pub unsub: AccessLevel,
    /// The access level for removing the channel.
    pub remove: AccessLevel,
}

/// How channels of one type behave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelSettings {
    /// How often messages are handled and state is sent, in ms, 1 to 60,000. For channeld's sake: the gateway wakes
    /// when something is due and not more often than this.
    pub tick_interval_ms: u32,
    /// How often a subscriber is sent what has changed unless it asks otherwise, in ms, within the limits.
    pub default_fan_out_interval_ms: u32,
    /// How long after its subscription that begins, in ms; negative: that much too early. Within the limits.
    pub default_fan_out_delay_ms: i32,
    /// Whether a channel ends when its owner is gone. GLOBAL never does.
    pub remove_channel_after_owner_removed: bool,
    /// Whether subscribers are notified when the owner is lost and when it is back.
    pub send_owner_lost_and_recovered: bool,
    /// The access levels for actions on others.
    pub acl: Acl,
    /// Full name of the message type that the channel holds, if the file has one.
    pub data_msg_full_name: Option<String>,
    /// Whether messages in maps are merged field by field; `None`: as the type of the state has it.
    pub merge_map_entries: Option<bool>,
    /// Where entities say where they are; `None`: where their type is known to say it.
    pub position: Option<PositionSetting>,
}

/// Where an entity's state says where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PositionSetting {
    /// `replicatedMovement.location` (11.3) of the first message of the state that has one, with z up: the layout of
    /// Unreal's plugin, for types of which nothing else is known.
    Unreal,
    /// At this path.
    Path {
        /// Names or numbers of fields, joined by dots.
        path: String,
        /// The vector's third component points up, and not its second.
        is_z_up: bool,
    },
}

impl Default for ChannelSettings {
    /// channeld's settings for GLOBAL when no file names it: tick 10 ms, fan-out 20 ms, no access to others.
    fn default() -> ChannelSettings {
        ChannelSettings {
            tick_interval_ms: 10,
            default_fan_out_interval_ms: 20,
            default_fan_out_delay_ms: 0,
            remove_channel_after_owner_removed: false,
            send_owner_lost_and_recovered: false,
            acl: Acl::default(),
            data_msg_full_name: None,
            merge_map_entries: None,
            position: None,
        }
    }
}

/// The settings of all channel types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelTypes {
    named: BTreeMap<i32, Arc<ChannelSettings>>,
    global: Arc<ChannelSettings>,
}

impl Default for ChannelTypes {
    /// The `hifi` preset.
    fn default() -> ChannelTypes {
        ChannelTypes::hifi()
    }
}

impl ChannelTypes {
    /// The settings of a channel type, by its number on the wire.
    pub fn of(&self, channel_type: i32) -> &Arc<ChannelSettings> {
        self.named.get(&channel_type).unwrap_or(&self.global)
    }

    /// The types that the file names, in ascending order.
    pub fn named(&self) -> impl Iterator<Item = (i32, &Arc<ChannelSettings>)> {
        self.named.iter().map(|(number, settings)| (*number, settings))
    }

    /// Reads the text of a file. `file` is its name, for complaints. Intervals and delays beyond the limits are moved
    /// to them, which is noted.
    ///
    /// # Errors
    /// A text that is not JSON, a key that is no channel type, a value of the wrong kind.
    pub fn parse(file: &str, text: &[u8], limits: &Limits, notes: &mut Vec<Note>) -> Result<ChannelTypes, FileError> {
        let document = Document::parse(file, text)?;
        let root = document.root();
        let members = root.members()?;
        if members.len() > MAX_TYPES {
            return Err(root.error(format!("there are more than {MAX_TYPES} channel types")));
        }
        let mut named = BTreeMap::new();
        for (key, node) in members {
            let number = key.parse::<i32>().ok().filter(|&number| number >= 0);
            let number = number.ok_or_else(|| node.error("the key is not the number of a channel type"))?;
            named.insert(number, Arc::new(read_settings(&node, limits, notes)?));
        }
        let global = named.get(&GLOBAL).cloned().unwrap_or_default();
        if !named.contains_key(&GLOBAL) {
            notes.push(root.note("type 1 (GLOBAL) is missing; it, and what else is missing, gets built-in settings"));
        }
        Ok(ChannelTypes { named, global })
    }

    /// Tick 20 ms, fan-out 20 ms.
    pub fn hifi() -> ChannelTypes {
        preset("channel_settings_hifi.json", HIFI)
    }

    /// Tick 100 ms, fan-out 200 ms.
    pub fn lofi() -> ChannelTypes {
        preset("channel_settings_lofi.json", LOFI)
    }

    /// For Unreal: entities tick at 33 ms and fan out at 50 ms, all else at 20 ms.
    pub fn ue() -> ChannelTypes {
        preset("channel_settings_ue.json", UE)
    }

    /// As [`ue`](Self::ue), with the data types of the third-person demo.
    pub fn tps() -> ChannelTypes {
        preset("channel_settings_tps.json", TPS)
    }

    /// The preset that ships under this name or file name.
    pub fn shipped(path: &str) -> Option<ChannelTypes> {
        match path.rsplit(['/', '\\']).next()? {
            "hifi" | "channel_settings_hifi.json" => Some(ChannelTypes::hifi()),
            "lofi" | "channel_settings_lofi.json" => Some(ChannelTypes::lofi()),
            "ue" | "channel_settings_ue.json" => Some(ChannelTypes::ue()),
            "tps" | "channel_settings_tps.json" => Some(ChannelTypes::tps()),
            _ => None,
        }
    }
}

fn preset(file: &str, text: &str) -> ChannelTypes {
    ChannelTypes::parse(file, text.as_bytes(), &Limits::default(), &mut Vec::new())
        .expect("the presets are sound: a test reads them")
}

fn read_settings(node: &Node<'_>, limits: &Limits, notes: &mut Vec<Note>) -> Result<ChannelSettings, FileError> {
    node.note_unknown(
        &[
            "TickIntervalMs",
            "DefaultFanOutIntervalMs",
            "DefaultFanOutDelayMs",
            "RemoveChannelAfterOwnerRemoved",
            "SendOwnerLostAndRecovered",
            "ACLSettings",
            "DataMsgFullName",
            "MergeMapEntries",
            "PositionPath",
            "PositionUp",
        ],
        notes,
    )?;
    let intervals = i64::from(limits.min_interval_ms)..=i64::from(limits.max_interval_ms);
    let delays = i64::from(limits.min_delay_ms)..=i64::from(limits.max_delay_ms);
    let tick = clamped(node, "TickIntervalMs", 1..=60_000, notes)?;
    let interval = clamped(node, "DefaultFanOutIntervalMs", intervals, notes)?;
    let delay = clamped(node, "DefaultFanOutDelayMs", delays, notes)?;
    let usual = ChannelSettings::default();
    Ok(ChannelSettings {
        tick_interval_ms: tick.map_or(usual.tick_interval_ms, |ms| ms as u32),
        default_fan_out_interval_ms: interval.map_or(usual.default_fan_out_interval_ms, |ms| ms as u32),
        default_fan_out_delay_ms: delay.map_or(usual.default_fan_out_delay_ms, |ms| ms as i32),
        remove_channel_after_owner_removed: flag(node, "RemoveChannelAfterOwnerRemoved")?,
        send_owner_lost_and_recovered: flag(node, "SendOwnerLostAndRecovered")?,
        acl: read_acl(node, notes)?,
        data_msg_full_name: read_name(node)?,
        merge_map_entries: node.get("MergeMapEntries")?.map(|value| value.boolean()).transpose()?,
        position: read_position(node)?,
    })
}

fn read_position(node: &Node<'_>) -> Result<Option<PositionSetting>, FileError> {
    let up = node.get("PositionUp")?;
    let is_z_up = match &up {
        None => false,
        Some(value) => match value.string()? {
            "Y" | "y" => false,
            "Z" | "z" => true,
            _ => return Err(value.error("the axis that points up is expected here: \"Y\" or \"Z\"")),
        },
    };
    let Some(value) = node.get("PositionPath")? else { return Ok(None) };
    let path = value.string()?;
    if path.len() > MAX_NAME_BYTES {
        return Err(value.error(format!("the path is longer than {MAX_NAME_BYTES} bytes")));
    }
    Ok(match path {
        "" => None,
        "unreal" => Some(PositionSetting::Unreal),
        _ => Some(PositionSetting::Path { path: path.into(), is_z_up }),
    })
}

/// A whole number, moved into a range.
fn clamped(
    node: &Node<'_>,
    key: &str,
    range: std::ops::RangeInclusive<i64>,
    notes: &mut Vec<Note>,
) -> Result<Option<i64>, FileError> {
    let Some(value) = node.get(key)? else { return Ok(None) };
    let number = value.integer(i64::MIN..=i64::MAX)?;
    let within = number.clamp(*range.start(), *range.end());
    if within != number {
        notes.push(value.note(format!("{number} is out of range; {within} is used")));
    }
    Ok(Some(within))
}

fn flag(node: &Node<'_>, key: &str) -> Result<bool, FileError> {
    node.get(key)?.map_or(Ok(false), |value| value.boolean())
}

fn read_acl(node: &Node<'_>, notes: &mut Vec<Note>) -> Result<Acl, FileError> {
    let Some(acl) = node.get("ACLSettings")? else { return Ok(Acl::default()) };
    acl.note_unknown(&["Sub", "Unsub", "Remove"], notes)?;
    let level = |key: &str| {
        let Some(value) = acl.get(key)? else { return Ok(AccessLevel::Nobody) };
        Ok(match value.integer(0..=3u8)? {
            0 => AccessLevel::Nobody,
            1 => AccessLevel::Owner,
            2 => AccessLevel::OwnerOrGlobalOwner,
            _ => AccessLevel::Anybody,
        })
    };
    Ok(Acl { sub: level("Sub")?, unsub: level("Unsub")?, remove: level("Remove")? })
}

fn read_name(node: &Node<'_>) -> Result<Option<String>, FileError> {
    let Some(value) = node.get("DataMsgFullName")? else { return Ok(None) };
    let name = value.string()?;
    if name.len() > MAX_NAME_BYTES {
        return Err(value.error(format!("the name is longer than {MAX_NAME_BYTES} bytes")));
    }
    Ok((!name.is_empty()).then(|| name.into()))
}
