//! The things that have homes.

use std::fmt;

use throng_bus::Subject;

/// Something that exactly one member serves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HomeKey {
    /// A channel, by its number.
    Channel(u64),
    /// A cell of the world, by its place in the grid.
    Cell(i32, i32),
    /// An entity, by its number.
    Entity(u64),
    /// The session of a client, by its number.
    Session(u64),
}

impl HomeKey {
    /// The key of its entry in the store: `home.channel.7`, `home.cell.-3.12`.
    pub fn home_subject(self) -> Subject {
        self.subject("home")
    }

    /// The key of its checkpoint in the store: `state.channel.7`.
    pub fn state_subject(self) -> Subject {
        self.subject("state")
    }

    /// Reads a key of the store, of anybody. `None` if it is not exactly what [`HomeKey::home_subject`] writes.
    pub fn read(subject: &Subject) -> Option<HomeKey> {
        let mut tokens = subject.as_str().strip_prefix("home.")?.split('.');
        let (kind, first) = (tokens.next()?, tokens.next()?);
        let key = match kind {
            "channel" => HomeKey::Channel(first.parse().ok()?),
            "entity" => HomeKey::Entity(first.parse().ok()?),
            "session" => HomeKey::Session(first.parse().ok()?),
            "cell" => HomeKey::Cell(first.parse().ok()?, tokens.next()?.parse().ok()?),
            _ => return None,
        };
        // One spelling for each key: not `home.channel.07`.
        (key.home_subject() == *subject).then_some(key)
    }

    fn subject(self, row: &str) -> Subject {
        let text = format!("{row}.{self}");
        Subject::new(&text).unwrap_or_else(|error| unreachable!("words and numbers are a name: {error}"))
    }
}

impl fmt::Display for HomeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HomeKey::Channel(id) => write!(f, "channel.{id}"),
            HomeKey::Cell(x, y) => write!(f, "cell.{x}.{y}"),
            HomeKey::Entity(id) => write!(f, "entity.{id}"),
            HomeKey::Session(id) => write!(f, "session.{id}"),
        }
    }
}

impl fmt::Debug for HomeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_one_spelling() {
        let keys =
            [HomeKey::Channel(u64::MAX), HomeKey::Cell(i32::MIN, 12), HomeKey::Entity(0), HomeKey::Session(1 << 40)];
        for key in keys {
            assert_eq!(HomeKey::read(&key.home_subject()), Some(key));
        }
        for text in
            ["home.channel.07", "home.channel.-1", "home.cell.1", "home.cell.1.2.3", "home.x.1", "state.channel.1"]
        {
            assert_eq!(HomeKey::read(&Subject::new(text).unwrap()), None, "{text}");
        }
    }
}
