//! The pages as HTML: plain tables and forms, without scripts. All text from peers is escaped.

use std::fmt::{self, Display, Write};

use super::{Bans, Overview, Table};
use throng_gateway_engine::Row;

/// Text that may come from a peer, for HTML: in a cell or within quotes.
struct Text<'a>(&'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| match letter {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            letter if letter.is_control() => write!(f, "\u{FFFD}"),
            letter => f.write_char(letter),
        })
    }
}

/// Bytes for people.
struct Bytes(u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes < 1 << 10 => write!(f, "{bytes} B"),
            bytes if bytes < 1 << 20 => write!(f, "{:.1} KiB", bytes as f64 / 1_024.0),
            bytes if bytes < 1 << 30 => write!(f, "{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
            bytes => write!(f, "{:.2} GiB", bytes as f64 / f64::from(1 << 30)),
        }
    }
}

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:72rem;margin:1.5rem auto;padding:0 1rem;color:#1b1f24}\
nav a{margin-right:1.1rem}nav a.here{font-weight:600;text-decoration:none;color:inherit}\
h1{font-size:1.35rem;margin:.6rem 0 1rem}h2{font-size:1.05rem;margin:1.4rem 0 .4rem}\
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.28rem .7rem;border-bottom:1px solid #d8dee4}\
th{font-weight:600;background:#f3f5f7}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}\
form{display:inline}button{font:inherit;padding:.1rem .6rem}.empty{color:#57606a}progress{width:14rem}";

const TABLES: [&str; 6] = ["", "connections", "channels", "cells", "entities", "bans"];

fn title(table: &str) -> &str {
    match table {
        "" => "Gateway",
        "connections" => "Connections",
        "channels" => "Channels",
        "cells" => "Cells",
        "entities" => "Entities",
        _ => "Bans",
    }
}

fn page(here: &str, body: &str) -> String {
    let links = TABLES.map(|table| {
        let class = if table == here { " class=\"here\"" } else { "" };
        format!("<a href=\"/{table}\"{class}>{}</a>", title(table))
    });
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0} · throng gateway</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head>\
         <body><nav>{1}</nav><h1>{0}</h1>{body}</body></html>",
        title(here),
        links.concat()
    )
}

/// A table with a head; names that begin with `#` are of numbers.
fn rows_of(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let class = |name: &str| if name.starts_with('#') { " class=\"n\"" } else { "" };
    let mut body = String::new();
    for row in rows {
        let cells = head.iter().zip(row).map(|(name, cell)| format!("<td{}>{cell}</td>", class(name)));
        body.push_str(&format!("<tr>{}</tr>", cells.collect::<String>()));
    }
    if body.is_empty() {
        return "<p class=\"empty\">There are none.</p>".into();
    }
    let names = head.iter().map(|name| format!("<th{}>{}</th>", class(name), name.trim_start_matches('#')));
    format!("<table><thead><tr>{}</tr></thead><tbody>{body}</tbody></table>", names.collect::<String>())
}

/// A button that does something, with what it needs.
fn button(action: &str, label: &str, token: &str, fields: &[(&str, &str)]) -> String {
    let hidden = |name: &str, value: &str| format!("<input type=\"hidden\" name=\"{name}\" value=\"{}\">", Text(value));
    let fields: String = fields.iter().map(|(name, value)| hidden(name, value)).collect();
    let token = hidden("token", token);
    format!("<form method=\"post\" action=\"/{action}\">{token}{fields}<button>{label}</button></form>")
}

pub(super) fn overview(overview: &Overview) -> String {
    let used: u64 = overview.memory.iter().map(|&(_, bytes)| bytes).sum();
    let limit = overview.memory_limit_bytes;
    let connections = [
        ("World servers", overview.servers),
        ("Clients", overview.clients),
        ("Lost, and waited for", overview.awaited),
        ("Logins that are being decided", overview.auth_asked),
        ("Logins that wait for that", overview.auth_waiting),
        ("Addresses that are shut out", overview.bans),
    ];
    let connections = connections.map(|(name, count)| vec![name.to_owned(), count.to_string()]);
    let channels = overview.channels.iter().map(|(kind, count)| vec![Text(kind).to_string(), count.to_string()]);
    let memory = overview.memory.iter().map(|&(part, bytes)| vec![part.to_owned(), Bytes(bytes).to_string()]);
    let body = format!(
        "<p>throng gateway {version}. {reload}</p>\
         <h2>Connections</h2>{connections}<h2>Channels</h2>{channels}\
         <h2>Memory that peers use</h2><p><progress max=\"{limit}\" value=\"{used}\"></progress> {used_text} of {limit_text}; \
         states {state} of {state_limit}</p>{memory}",
        version = overview.version,
        reload = button("reload", "Read the settings again", &overview.token, &[]),
        connections = rows_of(&["", "#"], connections),
        channels = rows_of(&["type", "#channels"], channels),
        used_text = Bytes(used),
        limit_text = Bytes(limit),
        state = Bytes(overview.state_bytes),
        state_limit = Bytes(overview.state_limit_bytes),
        memory = rows_of(&["part", "#bytes"], memory),
    );
    page("", &body)
}

fn owner(owner: Option<u32>, is_awaited: bool) -> String {
    match (owner, is_awaited) {
        (Some(owner), _) => owner.to_string(),
        (None, true) => "awaited".into(),
        (None, false) => "nobody".into(),
    }
}

fn cells_of(row: &Row, token: &str) -> Vec<String> {
    match row {
        Row::Connection(row) => {
            let number = row.connection.to_string();
            let kick = button("kick", "Kick", token, &[("connection", &number)]);
            vec![
                number,
                row.side.to_owned(),
                Text(&row.address).to_string(),
                Text(&row.player).to_string(),
                row.stage.to_owned(),
                Bytes(row.queued_bytes as u64).to_string(),
                row.subscriptions.to_string(),
                row.owned.to_string(),
                kick,
            ]
        }
        Row::Channel(row) => vec![
            row.channel.to_string(),
            row.kind.to_owned(),
            owner(row.owner, row.is_awaited),
            row.subscribers.to_string(),
            Bytes(row.state_bytes as u64).to_string(),
            Text(&row.metadata).to_string(),
        ],
        Row::Cell(row) => vec![
            row.channel.to_string(),
            owner(row.owner, row.is_awaited),
            row.entities.to_string(),
            row.subscribers.to_string(),
        ],
        Row::Entity(row) => vec![
            row.channel.to_string(),
            row.cell.map_or_else(|| "nowhere".into(), |cell| cell.to_string()),
            owner(row.owner, row.is_awaited),
            row.subscribers.to_string(),
        ],
    }
}

fn head_of(table: &str) -> &'static [&'static str] {
    match table {
        "connections" => {
            &["#number", "side", "address", "player", "stage", "#queued", "#subscriptions", "#channels owned", ""]
        }
        "channels" => &["#channel", "type", "owner", "#subscribers", "#state", "metadata"],
        "cells" => &["#channel", "owner", "#entities", "#subscribers"],
        _ => &["#channel", "cell", "owner", "#subscribers"],
    }
}

pub(super) fn table(table: &str, (found, from): (&Table, usize), token: &str) -> String {
    let mut body = rows_of(head_of(table), found.rows.iter().map(|row| cells_of(row, token)));
    let first = if from > 0 { format!("<a href=\"/{table}\">first</a> ") } else { String::new() };
    let next = found.next.map(|next| format!("<a href=\"/{table}?from={next}\">next</a>")).unwrap_or_default();
    body.push_str(&format!("<p>{first}{next}</p>"));
    page(table, &body)
}

pub(super) fn bans(bans: &Bans, token: &str) -> String {
    let address = |&(address, left_s): &(std::net::IpAddr, u64)| {
        let address = address.to_string();
        let unban = button("unban", "Forgive", token, &[("address", &address)]);
        vec![address, left_s.to_string(), unban]
    };
    let names = bans.names.iter().map(|(side, player, left_s)| {
        let unban = button("unban", "Forgive", token, &[("side", side), ("player", player)]);
        vec![(*side).to_owned(), Text(player).to_string(), left_s.to_string(), unban]
    });
    let head = &["address", "#seconds left", ""];
    let body = format!(
        "<h2>Addresses that misbehaved</h2>{}<h2>Addresses that guessed at one player's token too often</h2>{}\
         <h2>Names that broke the rules</h2>{}",
        rows_of(head, bans.addresses.iter().map(address)),
        rows_of(head, bans.guessers.iter().map(address)),
        rows_of(&["side", "player", "#seconds left", ""], names),
    );
    page("bans", &body)
}

/// An answer in one sentence.
pub(super) fn said(text: &str) -> String {
    page("", &format!("<p>{}</p>", Text(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_gateway_engine::ConnectionRow;

    #[test]
    fn what_a_peer_says_is_text_and_nothing_else() {
        let evil = "<script>alert(1)</script>\"'&\n";
        let row = ConnectionRow {
            connection: 7,
            side: "CLIENT",
            address: "203.0.113.1:1".into(),
            player: evil.into(),
            stage: "member",
            queued_bytes: 5 << 20,
            subscriptions: 3,
            owned: 0,
        };
        let found = Table { rows: vec![Row::Connection(row)], next: Some(100) };
        let html = table("connections", (&found, 0), "secret");
        assert!(
            !html.contains("<script>") && html.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;"),
            "{html}"
        );
        assert!(
            html.contains("5.0 MiB") && html.contains("/connections?from=100") && html.contains("value=\"secret\"")
        );
        let names = Bans { addresses: Vec::new(), guessers: Vec::new(), names: vec![("CLIENT", evil.into(), 9)] };
        assert!(!bans(&names, "secret").contains("<script>"));
        assert!(!said(evil).contains("<script>"));
    }
}
