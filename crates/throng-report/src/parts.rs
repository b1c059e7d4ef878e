//! The parts of a frame, and of its bytes: what each is, and its colour, which is the same on all pages.

/// A part: its name, its colours on light and on dark paper, and its meaning.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) light: &'static str,
    pub(crate) dark: &'static str,
    pub(crate) explanation: &'static str,
}

const fn part(name: &'static str, light: &'static str, dark: &'static str, explanation: &'static str) -> Part {
    Part { name, light, dark, explanation }
}

/// All parts with a colour of their own.
pub(crate) const PARTS: [Part; 30] = [
    part("simulate", "#7a8791", "#8f9ba5", "game code: moving the characters"),
    part("interest", "#b9975b", "#c9a96f", "deciding who is subscribed to what"),
    part("quantise", "#8f6bb3", "#a888c9", "quantising and comparing touched objects"),
    part("plan", "#a8485f", "#c4687d", "deciding which updates are due"),
    part("encode", "#d0743c", "#de8a56", "encoding frames of channels"),
    part("write", "#e0b13c", "#e3bd5a", "putting segments into connections' packets"),
    part("seal", "#4f9d69", "#63b27e", "encrypting packets"),
    part("send", "#2f6fb5", "#4a8bd2", "handing packets to the kernel"),
    part("receive", "#7fb2dd", "#93c3ec", "taking packets from the kernel"),
    part("open", "#2f9a9a", "#45b0b0", "finding the connections of packets, and decrypting them"),
    part("settle", "#86c9bd", "#9ad6cb", "acknowledgements, delivery records, inputs and messages of the packets"),
    part("other", "#b9bec4", "#5d646c", "the rest of the frame"),
    part("network", "#2f6fb5", "#4a8bd2", "sockets, packets, encryption"),
    part("replication", "#d0743c", "#de8a56", "what each client is told, and its encoding"),
    part("movement", "#7a8791", "#8f9ba5", "characters that walk and collide"),
    part("fog_of_war", "#8f6bb3", "#a888c9", "which enemies a player's client may know of"),
    part("animation", "#4f9d69", "#63b27e", "poses of bodies, for shots and for their history"),
    part("gameplay", "#b9975b", "#c9a96f", "rules, rounds and abilities"),
    part("equippable", "#a8485f", "#c4687d", "weapons, and the verdicts of shots"),
    part("character", "#e0b13c", "#e3bd5a", "health and state of characters"),
    part("physics", "#86c9bd", "#9ad6cb", "rays and bodies in the static world"),
    part("ai", "#2f9a9a", "#45b0b0", "decisions of agents in the server"),
    part("object", "#2f6fb5", "#4a8bd2", "object state, sent for the first time"),
    part("header", "#7fb2dd", "#93c3ec", "all other bytes: packet headers, encryption, messages, acknowledgements"),
    part("resend", "#d0743c", "#de8a56", "object state, sent again"),
    part("control", "#b9bec4", "#5d646c", "ends of subscriptions"),
    part("median", "#2f6fb5", "#4a8bd2", "half of the values are not above it"),
    part("p99", "#7fb2dd", "#93c3ec", "99th percentile: one of a hundred values is above it"),
    part("attackers", "#2f6fd0", "#6ea2f0", "the team that plants the bomb"),
    part("defenders", "#c8641a", "#e58a45", "the team that keeps it from the sites"),
];

/// Colours of parts that have none of their own, as those that a game adds.
pub(crate) const OTHERS: [(&str, &str); 6] = [
    ("#5b7fa6", "#7fa3ca"),
    ("#9a7b4f", "#bd9d70"),
    ("#6d9a5a", "#8fbc7c"),
    ("#9c5f8f", "#bf83b2"),
    ("#4f8f8f", "#72b2b2"),
    ("#a06a5a", "#c38d7d"),
];

/// The name of a part's colour: one of its own, or one of a few for all others.
pub fn ink(name: &str) -> String {
    if PARTS.iter().any(|part| part.name == name) {
        return name.to_owned();
    }
    let sum: usize = name.bytes().map(usize::from).sum();
    format!("other-{}", sum % OTHERS.len())
}

/// The meaning of a part; empty for one of a game.
pub fn explanation(name: &str) -> &'static str {
    PARTS.iter().find(|part| part.name == name).map_or("", |part| part.explanation)
}
