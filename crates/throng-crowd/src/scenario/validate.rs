//! The ranges of a scenario's values, and which of them must go together.

use throng_report::{Kind, check_limits};

use std::fmt::Display;

use super::{Model, Overrides, Ring, Scenario, ScenarioError, Scratch, Spawn, View};
use crate::kinds::FAR_STEP_M;

/// Errors name the key and, where there is one, the command-line option that sets it.
pub(super) fn check(origin: &str, scenario: &Scenario) -> Result<(), ScenarioError> {
    let check = Check { origin };
    check.name(&scenario.name)?;
    check.time(scenario)?;
    check.space(scenario)?;
    check.view(scenario)?;
    check.objects(scenario)?;
    check.machines(scenario)?;
    check.limits(scenario)
}

/// Whether each override changes anything.
pub(super) fn check_overrides(origin: &str, overrides: &Overrides, scenario: &Scenario) -> Result<(), ScenarioError> {
    // A scenario does not tell whether it says `shared` or nothing.
    Check { origin }.shared_state(scenario, "scratch (--scratch)", overrides.scratch.is_some())
}

/// Edges of a run at most.
const EDGES_MAX: u32 = 64;
/// Servers that share the area.
const SERVERS_MAX: u32 = 16;

struct Check<'a> {
    origin: &'a str,
}

type Checked = Result<(), ScenarioError>;

impl Check<'_> {
    fn name(&self, name: &str) -> Checked {
        let fits = (1..=40).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        self.must(fits, "name", || format!("`{name}` must be 1 to 40 letters, digits, - or _"))
    }

    fn time(&self, s: &Scenario) -> Checked {
        self.range("players (--players)", s.players, 1, 65_536)?;
        self.range("tick_hz (--rate)", s.tick_hz, 1, 240)?;
        self.range("input_hz", s.input_hz, 1, 240)?;
        self.range("seconds (--seconds)", s.seconds, 1, 86_400)?;
        if let Some(fault) = s.profile.fault((s.players, "players (--players)"), s.seconds) {
            return self.must(false, "profile (--profile)", || fault);
        }
        self.range("warmup_seconds", s.warmup_seconds, 0, 3_600)?;
        self.must(s.start_when_connected > 0.0 && s.start_when_connected <= 1.0, "start_when_connected", || {
            format!("{} must be above 0 and at most 1", s.start_when_connected)
        })
    }

    fn limits(&self, s: &Scenario) -> Checked {
        let fault = check_limits(Kind::Crowd, &s.limits).err();
        self.must(fault.is_none(), "limits", || fault.map_or(String::new(), |error| error.to_string()))
    }

    fn space(&self, s: &Scenario) -> Checked {
        for side in s.area_m {
            self.range("area_m (--area)", side, 1.0, 100_000.0)?;
        }
        self.range("height_m", s.height_m, 1.0, 10_000.0)?;
        for side in s.cell_m {
            self.range("cell_m", side, 1.0, 10_000.0)?;
        }
        self.range("obstacles", s.obstacles, 0, 64)?;
        self.range("leash_m", s.leash_m, 0.0, 100_000.0)?;
        self.spawn(s)
    }

    fn spawn(&self, s: &Scenario) -> Checked {
        let [width, depth] = s.area_m;
        match s.spawn {
            Spawn::Uniform | Spawn::Spread => Ok(()),
            Spawn::Disc { radius_m } => {
                self.range("spawn.radius_m", radius_m, 0.0, 50_000.0)?;
                self.must(radius_m * 2.0 <= width.min(depth), "spawn.radius_m", || {
                    format!("a disc of {radius_m} m does not fit in {width} m x {depth} m: give a larger --area")
                })
            }
            Spawn::Hot { share, at_m, radius_m } => {
                self.range("spawn.share", share, 0.0, 1.0)?;
                self.range("spawn.radius_m", radius_m, 0.0, 50_000.0)?;
                let room_m = at_m.iter().zip(s.area_m).map(|(at, side)| side / 2.0 - at.abs() - radius_m);
                // NaN does not fit.
                self.must(room_m.into_iter().all(|room_m| room_m >= 0.0), "spawn.at_m", || {
                    format!("{radius_m} m around {at_m:?} do not fit in {width} m x {depth} m: give a larger --area")
                })
            }
            Spawn::Line { spacing_m } => {
                self.range("spawn.spacing_m", spacing_m, 0.0, 1_000.0)?;
                let length = spacing_m * (s.players - 1) as f32;
                self.must(length <= width, "spawn.spacing_m", || {
                    format!("a line of {length} m does not fit in {width} m: give a larger --area or fewer --players")
                })
            }
        }
    }

    fn view(&self, s: &Scenario) -> Checked {
        self.range("budget_kbit_per_s (--budget)", s.budget_kbit_per_s, 1, 1_000_000)?;
        if s.view == View::Everything {
            return self
                .must(s.rings.is_empty(), "rings", || "view = \"everything\" has no rings: leave them out".into());
        }
        self.rings(&s.rings, ["rings", "rings.radius_m", "rings.interval_ticks"])?;
        let Some(far) = &s.far else { return Ok(()) };
        for side in far.cell_m {
            self.range("far.cell_m", side, 2.0, 10_000.0)?;
            self.must(side % FAR_STEP_M == 0.0, "far.cell_m", || {
                format!(
                    "{side} must be a whole number of {FAR_STEP_M} m, the steps of positions that are seen from afar"
                )
            })?;
        }
        self.range("far.parts", far.parts, 1, 1_000)?;
        self.rings(&far.rings, ["far.rings", "far.rings.radius_m", "far.rings.interval_ticks"])
    }

    fn rings(&self, rings: &[Ring], [key, radius, interval]: [&'static str; 3]) -> Checked {
        self.must((1..=8).contains(&rings.len()), key, || {
            format!("view = \"rings\" needs 1 to 8 of them, not {}", rings.len())
        })?;
        for ring in rings {
            self.range(radius, ring.radius_m, 0.1, 100_000.0)?;
            self.range(interval, ring.interval_ticks, 1, 3_600)?;
        }
        let outwards = rings.windows(2).all(|pair| pair[0].radius_m < pair[1].radius_m);
        self.must(outwards, key, || "give them from the inside outwards, each wider than the one before".into())
    }

    fn objects(&self, s: &Scenario) -> Checked {
        self.range("chests_per_player", s.chests_per_player, 0, 100)?;
        self.range("chest_change_ticks", s.chest_change_ticks, 1, 36_000)?;
        self.range("idle_objects", s.idle_objects, 0, 1_000_000)
    }

    /// A setting that only one model has.
    fn shared_state(&self, s: &Scenario, key: &'static str, is_given: bool) -> Checked {
        self.must(!is_given || s.model == Model::SharedState, key, || {
            format!("the model {} has no such setting: add --model shared-state, or leave it out", s.model.name())
        })
    }

    fn machines(&self, s: &Scenario) -> Checked {
        self.shared_state(s, "baselines (--baselines)", s.baselines)?;
        self.shared_state(s, "scratch (--scratch)", s.scratch != Scratch::default())?;
        self.range("decoded_fraction", s.decoded_fraction, 0.0, 1.0)?;
        self.range("server_threads (--server-threads)", s.server_threads, 1, 256)?;
        self.range("edges (--edges)", s.edges, 0, EDGES_MAX)?;
        self.must(s.edges == 0 || s.model == Model::Throng, "edges (--edges)", || {
            format!("the model {} has no edges: leave out --model", s.model.name())
        })?;
        self.must(s.edges == 0 || s.far.is_none(), "edges (--edges)", || {
            "edges do not pass on the view from afar: leave out `far`".to_owned()
        })?;
        self.range("truth_hz (--truth-hz)", s.truth_hz, 1, 240)?;
        self.range("servers (--servers)", s.servers, 1, SERVERS_MAX)?;
        self.must(s.servers == 1 || s.edges > 0, "servers (--servers)", || {
            "clients see several servers through edges alone: add --edges".to_owned()
        })?;
        self.must(s.servers == 1 || s.chests_per_player == 0, "servers (--servers)", || {
            "chests are not handed over from server to server: leave out `chests_per_player`".to_owned()
        })?;
        let obstacle = super::fault::obstacle(s);
        self.must(obstacle.is_none(), "faults (--fault)", || obstacle.unwrap_or_default())?;
        self.range("send_slowdown_percent (--send-slowdown)", s.send_slowdown_percent, 0, 1_000)?;
        self.must(s.send_slowdown_percent == 0 || s.server_threads == 1, "send_slowdown_percent", || {
            "several threads cannot be slowed: leave out --server-threads".to_owned()
        })
    }

    /// NaN is in no range.
    fn range<T: PartialOrd + Display>(&self, key: &'static str, value: T, low: T, high: T) -> Checked {
        self.must(value >= low && value <= high, key, || format!("{value} must be from {low} to {high}"))
    }

    fn must(&self, holds: bool, key: &'static str, message: impl FnOnce() -> String) -> Checked {
        if holds {
            return Ok(());
        }
        Err(ScenarioError::Invalid { origin: self.origin.to_owned(), key, message: message() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Far, Overrides, Scratch};
    use super::*;

    fn refused(change: impl FnOnce(&mut Scenario)) -> String {
        let mut scenario = Scenario::resolve("crowd", &Overrides::default()).unwrap();
        change(&mut scenario);
        let error = check("crowd", &scenario).unwrap_err();
        assert_eq!(error.tag(), "invalid");
        let text = error.to_string();
        assert!(!text.contains('\n'), "{text}");
        text
    }

    #[test]
    fn a_number_out_of_range_names_key_option_and_range() {
        assert_eq!(refused(|s| s.players = 0), "scenario crowd: players (--players): 0 must be from 1 to 65536");
        assert!(refused(|s| s.tick_hz = 1000).contains("--rate"));
        assert!(refused(|s| s.area_m = [f32::NAN, 10.0]).contains("--area"));
        assert!(refused(|s| s.start_when_connected = 0.0).contains("above 0"));
        assert!(refused(|s| s.name = "../../etc".into()).contains("letters"));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        assert!(refused(|s| s.spawn = Spawn::Disc { radius_m: 800.0 }).contains("does not fit"));
        let hot = |share, x| Spawn::Hot { share, at_m: [x, 0.0], radius_m: 10.0 };
        assert!(refused(|s| s.spawn = hot(0.5, -41.0)).contains("do not fit"));
        assert!(refused(|s| s.spawn = hot(0.5, f32::NAN)).contains("do not fit"));
        assert!(refused(|s| s.spawn = hot(1.5, 0.0)).contains("spawn.share"));
        assert!(refused(|s| s.spawn = Spawn::Line { spacing_m: 1.0 }).contains("line of 999 m"));
        assert!(refused(|s| (s.send_slowdown_percent, s.server_threads) = (20, 4)).contains("cannot be slowed"));
        assert!(refused(|s| s.edges = 65).contains("--edges"));
        assert!(refused(|s| (s.servers, s.edges) = (0, 1)).contains("--servers"));
        assert!(refused(|s| (s.servers, s.edges) = (17, 1)).contains("--servers"));
        assert!(refused(|s| s.truth_hz = 0).contains("--truth-hz"));
        assert!(refused(|s| s.servers = 2).contains("add --edges"));
        assert!(refused(|s| (s.servers, s.edges, s.chests_per_player) = (2, 1, 3)).contains("chests"));
        assert!(refused(|s| (s.edges, s.model) = (2, Model::Graph)).contains("no edges"));
        assert!(refused(|s| s.baselines = true).contains("baselines (--baselines)"));
        let (given, model) = (Some(Scratch::Shared), Some(Model::Throng));
        for (scratch, model, baselines) in [
            (given, model, false),
            (given, None, false),
            (Some(Scratch::PerConnection), Some(Model::Graph), false),
            (None, model, true),
        ] {
            let overrides = Overrides { scratch, model, baselines, ..Overrides::default() };
            let error = Scenario::resolve("crowd", &overrides).unwrap_err().to_string();
            assert!(error.contains("--model shared-state") && !error.contains('\n'), "{error}");
            let overrides = Overrides { model: Some(Model::SharedState), ..overrides };
            assert!(Scenario::resolve("crowd", &overrides).is_ok());
        }
        assert!(refused(|s| s.view = View::Everything).contains("no rings"));
        assert!(refused(|s| s.rings.clear()).contains("1 to 8"));
        let far = |cell_m, radius_m| Far {
            cell_m: [cell_m; 3],
            parts: 1,
            rings: vec![Ring { radius_m, interval_ticks: 100 }],
        };
        assert!(refused(|s| s.far = Some(far(60.3, 200.0))).contains("whole number of 0.5 m"));
        assert!(refused(|s| (s.edges, s.far) = (1, Some(far(60.0, 90.0)))).contains("from afar"));
        assert!(refused(|s| s.far = Some(far(60.0, 0.0))).contains("far.rings.radius_m"));
        assert!(refused(|s| s.rings.push(Ring { radius_m: 5.0, interval_ticks: 1 })).contains("outwards"));
    }
}
