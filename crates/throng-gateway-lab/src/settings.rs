//! The files and arguments that a gateway is started with: channeld's own, so that they fit either.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use throng_channeld::{FIRST_ENTITY_CHANNEL, FIRST_SPATIAL_CHANNEL};

use crate::load::{CM_PER_M, CONNECTION_BITS, FAN_OUT_MS, GRID_CELLS, GRID_SERVERS, Scene, TOKEN_KEY, Transport};
use crate::motion::CELL_M;
use crate::traffic::{ENTITY_TYPE, GLOBAL_TYPE};

/// Access level "anyone": a run's servers subscribe clients to channels of other servers.
const ANYONE: u32 = 3;

/// Writes the settings of a scene into a folder, and returns the arguments that name them.
pub(super) fn write(folder: &Path, scene: Scene) -> io::Result<Vec<OsString>> {
    let write = |name: &str, content: Value| -> io::Result<PathBuf> {
        let path = folder.join(name);
        fs::write(&path, format!("{content:#}\n"))?;
        Ok(path)
    };
    let clients_may = match scene {
        // Clients that write state themselves.
        Scene::SingleRelay => "3-8, 15-65535",
        _ => "7, 99-65535",
    };
    let mut arguments: Vec<OsString> = Vec::new();
    let mut add = |flag: &str, path: PathBuf| arguments.extend([flag.into(), path.into_os_string()]);
    add("-chs", write("channel_settings.json", channel_settings())?);
    add("-sfsm", write("server_fsm.json", machine("2-65535"))?);
    add("-cfsm", write("client_fsm.json", machine(clients_may))?);
    if scene == Scene::Spatial {
        add("-scc", write("spatial.json", spatial())?);
    }
    arguments.extend([
        format!("-mcb={CONNECTION_BITS}").into(),
        format!("-scs={FIRST_SPATIAL_CHANNEL}").into(),
        format!("-ecs={FIRST_ENTITY_CHANNEL}").into(),
    ]);
    Ok(arguments)
}

/// The arguments for two addresses.
pub(super) fn listen(
    folder: &Path,
    servers: SocketAddr,
    players: (SocketAddr, Transport),
) -> io::Result<Vec<OsString>> {
    let mut arguments: Vec<OsString> = ["-dev", "-cwm=false", "-sn", "tcp", "-sa"].map(OsString::from).into();
    arguments.push(servers.to_string().into());
    arguments.extend(door(folder, players)?);
    Ok(arguments)
}

/// The arguments for the clients' door, and the file with its key if it needs one.
fn door(folder: &Path, (address, transport): (SocketAddr, Transport)) -> io::Result<Vec<OsString>> {
    let words = ["-cn", transport.name(), "-ca", &address.to_string()].map(OsString::from);
    let mut arguments: Vec<OsString> = words.into();
    if transport == Transport::Throng {
        let key = folder.join("token.key");
        fs::write(&key, TOKEN_KEY.map(|byte| format!("{byte:02x}")).concat())?;
        arguments.extend(["-throngkey".into(), key.into_os_string()]);
    }
    Ok(arguments)
}

/// Further arguments of a gateway with edges, and the file with the key that all of them know.
pub(super) fn home(folder: &Path, edges: SocketAddr) -> io::Result<Vec<OsString>> {
    let key = folder.join("edge.key");
    fs::write(&key, format!("{}\n", "5e".repeat(32)))?;
    let mut arguments = vec!["-edges".into(), edges.to_string().into(), "-edgekey".into(), key.into_os_string()];
    // Clients of an edge that is killed go on at another one.
    arguments.extend(["-limit".into(), "client_resume_ms=30000".into()]);
    Ok(arguments)
}

/// The arguments of an edge, beside the common ones.
pub(super) fn edge(folder: &Path, home: SocketAddr, players: (SocketAddr, Transport)) -> io::Result<Vec<OsString>> {
    let key = folder.join("edge.key").into_os_string();
    let mut arguments: Vec<OsString> = vec!["-home".into(), home.to_string().into(), "-edgekey".into(), key];
    arguments.extend(door(folder, players)?);
    Ok(arguments)
}

/// The common arguments without those that only a home has.
pub(super) fn of_edges(arguments: &[OsString]) -> Vec<OsString> {
    let mut rest = arguments.iter();
    let mut kept = Vec::new();
    while let Some(argument) = rest.next() {
        match argument == "-scc" {
            true => drop(rest.next()),
            false => kept.push(argument.clone()),
        }
    }
    kept
}

/// Further arguments of our gateway: the types of the state (channeld has them compiled in), the address of the metrics
/// page, and no limits by address, because all clients have the same address.
pub(super) fn ours(folder: &Path, metrics: SocketAddr) -> io::Result<Vec<OsString>> {
    let path = folder.join("descriptors.bin");
    fs::write(&path, super::traffic::descriptors())?;
    let mut arguments = vec!["-descriptors".into(), path.into_os_string(), "-http".into(), metrics.to_string().into()];
    for limit in ["max_connections_per_address", "max_new_connections_per_address_per_s"] {
        arguments.extend(["-limit".into(), format!("{limit}=0").into()]);
    }
    Ok(arguments)
}

/// 50 ticks and fan-outs a second for every type of channel.
fn channel_settings() -> Value {
    let types = [("1", GLOBAL_TYPE), ("4", "unrealpb.SpatialChannelData"), ("5", ENTITY_TYPE)];
    let of = |data: &str| {
        json!({
            "TickIntervalMs": FAN_OUT_MS,
            "DefaultFanOutIntervalMs": FAN_OUT_MS,
            "DefaultFanOutDelayMs": 0,
            "RemoveChannelAfterOwnerRemoved": false,
            "SendOwnerLostAndRecovered": false,
            "ACLSettings": { "Sub": ANYONE, "Unsub": ANYONE, "Remove": ANYONE },
            "DataMsgFullName": data,
        })
    };
    Value::Object(types.map(|(number, data)| (number.to_owned(), of(data))).into_iter().collect())
}

fn machine(open: &str) -> Value {
    json!({
        "InitState": "INIT",
        "States": [
            { "Name": "INIT", "MsgTypeWhitelist": "1", "MsgTypeBlacklist": "" },
            { "Name": "OPEN", "MsgTypeWhitelist": open, "MsgTypeBlacklist": "" },
        ],
        "Transitions": [],
    })
}

fn spatial() -> Value {
    let cell_cm = CELL_M * CM_PER_M;
    json!({
        "SpatialControllerType": "StaticGrid2D",
        "Config": {
            "WorldOffsetX": 0,
            "WorldOffsetZ": 0,
            "GridWidth": cell_cm,
            "GridHeight": cell_cm,
            "GridCols": GRID_CELLS,
            "GridRows": GRID_CELLS,
            "ServerCols": GRID_SERVERS,
            "ServerRows": GRID_SERVERS,
            "ServerInterestBorderSize": 0,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_argument_names_a_file_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let arguments = write(folder.path(), Scene::Spatial).unwrap();
        let named: Vec<_> = arguments.iter().filter(|argument| Path::new(argument).is_absolute()).collect();
        assert_eq!(named.len(), 4);
        for path in named {
            let text = fs::read_to_string(path).unwrap();
            assert!(serde_json::from_str::<Value>(&text).unwrap().is_object());
        }
        assert!(!write(folder.path(), Scene::EntityLod).unwrap().contains(&"-scc".into()));
    }

    #[test]
    fn a_door_for_datagrams_has_the_key_of_the_clients_tokens() {
        let folder = tempfile::tempdir().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        assert_eq!(door(folder.path(), (address, Transport::Tcp)).unwrap(), ["-cn", "tcp", "-ca", "127.0.0.1:9"]);
        let arguments = door(folder.path(), (address, Transport::Throng)).unwrap();
        assert_eq!(arguments[..5], ["-cn", "throng", "-ca", "127.0.0.1:9", "-throngkey"]);
        assert_eq!(fs::read_to_string(&arguments[5]).unwrap(), "7b".repeat(TOKEN_KEY.len()));
    }

    #[test]
    fn the_grid_is_as_published() {
        let config = &spatial()["Config"];
        assert_eq!(config["GridWidth"], 2_000.0);
        assert_eq!((&config["GridCols"], &config["ServerRows"]), (&json!(15), &json!(3)));
    }
}
