//! The command line of a peer's program.

use crate::world::SPARSE_PLAYERS_MAX;

/// Which world, see the README.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Everyone in a square of 200 m, everyone sees everyone.
    Dense,
    /// Everyone 800 m apart, each sees only itself and this many chests beside it.
    Sparse {
        /// Chests for each character.
        chests: u32,
    },
}

impl Workload {
    /// As on the command line.
    pub fn name(self) -> String {
        match self {
            Workload::Dense => "dense".to_owned(),
            Workload::Sparse { chests: 0 } => "sparse".to_owned(),
            Workload::Sparse { chests } => format!("sparse-{chests}"),
        }
    }

    fn parse(name: &str) -> Option<Workload> {
        match name {
            "dense" => Some(Workload::Dense),
            "sparse" => Some(Workload::Sparse { chests: 0 }),
            _ => Some(Workload::Sparse { chests: name.strip_prefix("sparse-")?.parse().ok()? }),
        }
    }

    /// Chests for each character.
    pub fn chests(self) -> u32 {
        match self {
            Workload::Dense => 0,
            Workload::Sparse { chests } => chests,
        }
    }
}

/// The options of a program.
#[derive(Clone, Debug)]
pub struct Arguments {
    /// Which world.
    pub workload: Workload,
    /// Characters, and clients: one each.
    pub players: u32,
    /// Ticks before measuring begins.
    pub warmup_ticks: u32,
    /// Ticks that are measured.
    pub ticks: u32,
    /// Ticks without changes before the last check.
    pub settle_ticks: u32,
    /// Ticks are 33 ms apart in real time, so that the server's caches are as cold as a game's; otherwise they follow each other
    /// at once.
    pub is_paced: bool,
    /// Lost packets of a hundred, in each direction, while the world moves.
    pub loss_percent: u32,
}

impl Arguments {
    /// From the command line; ends the program with a hint if an argument is wrong.
    pub fn from_command_line() -> Arguments {
        let mut arguments = Arguments {
            workload: Workload::Dense,
            players: 100,
            warmup_ticks: 60,
            ticks: 300,
            settle_ticks: 30,
            is_paced: false,
            loss_percent: 0,
        };
        let mut words = std::env::args().skip(1);
        while let Some(option) = words.next() {
            if arguments.set(&option, &mut words).is_none() {
                eprintln!("cannot make sense of `{option}`");
                eprintln!(
                    "[--workload dense|sparse|sparse-10|sparse-20] [--players N] [--warmup N] [--ticks N] [--settle N] [--paced] [--loss PERCENT]"
                );
                std::process::exit(2);
            }
        }
        let players_max = match arguments.workload {
            Workload::Dense => 10_000,
            Workload::Sparse { .. } => SPARSE_PLAYERS_MAX,
        };
        if arguments.players > players_max {
            eprintln!("{} is for at most {players_max} players", arguments.workload.name());
            std::process::exit(2);
        }
        arguments
    }

    fn set(&mut self, option: &str, words: &mut impl Iterator<Item = String>) -> Option<()> {
        let mut number = || words.next()?.parse::<u32>().ok().filter(|&number| number > 0);
        match option {
            "--workload" => self.workload = Workload::parse(&words.next()?)?,
            "--players" => self.players = number()?,
            "--warmup" => self.warmup_ticks = number()?,
            "--ticks" => self.ticks = number()?,
            "--settle" => self.settle_ticks = number()?,
            "--loss" => self.loss_percent = number().filter(|&percent| percent <= 20)?,
            "--paced" => self.is_paced = true,
            _ => return None,
        }
        Some(())
    }
}
