//! Shots are judged by what the shooter saw.

use glam::{Vec3, vec3};
use throng_tactical::command::{Buttons, Choice, Command, Item};
use throng_tactical::senses::RoundPhase;
use throng_tactical::{Event, Rules};

use crate::support::{Play, course, quick};

const CHEST: Vec3 = vec3(0.0, 1.25, 0.0);

/// A duel in which seat 0 has a rifle and a delay, and seat 5 runs along z, 20 m before it. Both have a dash and a wall.
struct Duel {
    play: Play,
    /// Where seat 5 was at the end of each tick, by tick.
    way: Vec<(u64, Vec3)>,
    delay_ticks: f64,
}

impl Duel {
    fn new(rtt_ms: u32) -> Duel {
        let mut play = Play::new(course(), Rules { buy_s: 0.5, money: 9_000, ..quick() }, 3);
        play.hold(0, 1, |command| command.choice = Choice::Buy(Item::Rifle));
        play.hold(5, 1, |command| command.choice = Choice::Buy(Item::Dash));
        play.hold(5, 1, |command| command.choice = Choice::Buy(Item::Wall));
        play.until(RoundPhase::Live);
        play.rtt(0, rtt_ms * 1_000);
        play.put(0, vec3(0.0, 0.0, 0.0), Vec3::X);
        play.put(5, vec3(18.0, 0.0, -14.0), Vec3::Z);
        // The picture on the screen is older than the tick that handles the shot, by the round trip and the
        // interpolation.
        let delay_ticks = f64::from(rtt_ms) * 0.128 + 1.0;
        Duel { play, way: Vec::new(), delay_ticks }
    }

    /// A tick in which seat 5 does something and seat 0 stands.
    fn tick(&mut self, forward: i8, buttons: Buttons, shot: Option<Command>) {
        let target = self.play.idle(5);
        self.play.send(5, Command { forward, buttons, ..target });
        let shooter = self.play.idle(0);
        self.play.send(0, shot.unwrap_or(shooter));
        self.play.step();
        let at = self.play.me(5).position;
        self.way.push((self.play.tick, at));
    }

    fn run(&mut self, ticks: u32) {
        for _ in 0..ticks {
            self.tick(127, Buttons::NONE, None);
        }
    }

    /// Where seat 5 is on the screen of seat 0, for a shot that is handled in the next tick; and the claim.
    fn on_screen(&self) -> (Vec3, u32, u8) {
        let shown = (self.play.tick + 1) as f64 - self.delay_ticks;
        let (tick, part) = (shown.floor() as u64, (shown.fract() * 256.0) as u8);
        let at = |tick: u64| self.way.iter().find(|(known, _)| *known == tick).map(|(_, at)| *at).unwrap();
        let place = if part == 0 { at(tick) } else { at(tick).lerp(at(tick + 1), f32::from(part) / 256.0) };
        (place, tick as u32, part)
    }

    fn shot_at(&mut self, feet: Vec3, (view_tick, view_fraction): (u32, u8)) -> Command {
        let me = self.play.me(0);
        let mut command = Command { view_tick, view_fraction, buttons: Buttons::FIRE, ..self.play.idle(0) };
        command.look_along(feet + CHEST - me.eye());
        command
    }
}

#[test]
fn at_every_latency_a_shot_hits_what_the_screen_showed() {
    for rtt_ms in [0, 20, 35, 80, 150, 200] {
        let mut duel = Duel::new(rtt_ms);
        duel.run(220);
        let (shown, tick, part) = duel.on_screen();
        let now = duel.play.me(5).position;
        let shot = duel.shot_at(shown, (tick, part));
        duel.tick(127, Buttons::NONE, Some(shot));
        assert_eq!((duel.play.shots(), duel.play.hits()), (1, 1), "{rtt_ms} ms: aimed at the screen");
        // In the meantime it has run on by more than its width: the screen is what counts.
        let ahead_m = now.distance(shown);
        assert!((ahead_m - 5.6 * rtt_ms as f32 / 1_000.0).abs() < 0.12, "{rtt_ms} ms: {ahead_m} m");
        if ahead_m > 0.6 {
            let mut duel = Duel::new(rtt_ms);
            duel.run(220);
            let (_, tick, part) = duel.on_screen();
            let now = duel.play.me(5).position;
            let shot = duel.shot_at(now, (tick, part));
            duel.tick(127, Buttons::NONE, Some(shot));
            assert_eq!((duel.play.shots(), duel.play.hits()), (1, 0), "{rtt_ms} ms: aimed where it is now");
        }
    }
}

#[test]
fn a_runner_who_is_behind_a_wall_by_now_is_hit_where_the_shooter_saw_it() {
    // The wall of the course is at x = 20, z from -3 to 3. The runner passes behind it at x = 22.
    let mut duel = Duel::new(150);
    duel.play.put(5, vec3(22.0, 0.0, -14.0), Vec3::Z);
    while duel.play.me(5).position.z < -3.1 {
        duel.run(1);
    }
    let (shown, tick, part) = duel.on_screen();
    assert!(shown.z < -3.6 && duel.play.me(5).position.z > -3.1);
    let shot = duel.shot_at(shown, (tick, part));
    duel.tick(127, Buttons::NONE, Some(shot));
    assert_eq!(duel.play.hits(), 1);
    // Half a second later the picture is behind the wall too.
    duel.run(64);
    let (shown, tick, part) = duel.on_screen();
    let shot = duel.shot_at(shown, (tick, part));
    duel.tick(127, Buttons::NONE, Some(shot));
    assert_eq!((duel.play.hits(), duel.play.game.rewind_counters().blocked), (1, 1));
}

#[test]
fn a_dash_beats_a_shot_that_was_fired_later_and_no_earlier_one() {
    // Of the shooter's 160 ms, half pass between the shot and the tick that handles it: 10.24 ticks.
    for (dash_ago_ticks, escapes) in [(4, false), (14, true)] {
        let mut duel = Duel::new(160);
        duel.run(200);
        duel.tick(127, Buttons::DASH, None);
        for _ in 1..dash_ago_ticks {
            duel.tick(127, Buttons::NONE, None);
        }
        let (shown, tick, part) = duel.on_screen();
        let shot = duel.shot_at(shown, (tick, part));
        duel.tick(127, Buttons::NONE, Some(shot));
        let escaped = duel.play.count(|event| matches!(event, Event::Escaped { .. }));
        assert_eq!((duel.play.hits(), escaped), if escapes { (0, 1) } else { (1, 0) }, "{dash_ago_ticks} ticks");
    }
}

#[test]
fn after_a_dash_its_owner_can_be_hit_again() {
    let mut duel = Duel::new(40);
    duel.run(150);
    duel.tick(127, Buttons::DASH, None);
    duel.run(60);
    let (shown, tick, part) = duel.on_screen();
    let shot = duel.shot_at(shown, (tick, part));
    duel.tick(127, Buttons::NONE, Some(shot));
    assert_eq!(duel.play.hits(), 1);
}

#[test]
fn a_wall_stops_shots_only_for_those_who_saw_it() {
    for (raised_ago_ticks, is_hit) in [(8, true), (80, false)] {
        let mut duel = Duel::new(160);
        duel.play.put(5, vec3(18.0, 0.0, 0.0), Vec3::NEG_X);
        for _ in 0..60 {
            duel.tick(0, Buttons::NONE, None);
        }
        duel.tick(0, Buttons::WALL, None);
        assert_eq!(duel.play.me(5).charges.wall, 0, "the wall stands");
        for _ in 1..raised_ago_ticks {
            duel.tick(0, Buttons::NONE, None);
        }
        let (shown, tick, part) = duel.on_screen();
        let shot = duel.shot_at(shown, (tick, part));
        duel.tick(0, Buttons::NONE, Some(shot));
        assert_eq!((duel.play.shots(), duel.play.hits() == 1), (1, is_hit), "{raised_ago_ticks} ticks");
    }
}

/// Five rifles at five runners who crouch now and then: the verdicts of poses of every 4th tick against all poses. The
/// shooters claim what their screens show, so many ticks ago.
fn compared(rtt_us: u32, ago_ticks: u32, seed: u64) -> throng_rewind::Comparison {
    let rules = Rules { buy_s: 0.5, money: 9_000, ..quick() };
    let mut play = Play::new(course(), rules, seed);
    play.game = throng_tactical::Tactical::new(course(), rules, seed)
        .and_then(throng_tactical::Tactical::with_comparison)
        .unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut play = play.rejoin();
    for seat in 0..5 {
        play.hold(seat, 1, |command| command.choice = Choice::Buy(Item::Rifle));
        play.rtt(seat, rtt_us);
    }
    play.until(RoundPhase::Live);
    for seat in 0..10 {
        let side = if seat < 5 { -12.0 } else { 12.0 };
        play.put(seat, vec3(side - 20.0, 0.0, 3.0 * f32::from(seat % 5) + 10.0), Vec3::Z);
    }
    for tick in 0..1_000u32 {
        for seat in 5..10 {
            let own = play.idle(seat);
            let buttons = if tick % 100 < 20 { Buttons::CROUCH } else { Buttons::NONE };
            let forward = if (tick / 90) % 2 == 0 { 127 } else { -127 };
            play.send(seat, Command { forward, buttons, ..own });
        }
        for seat in 0..5 {
            let target = play.me(5 + random.u16(..5)).position;
            let mut command = Command { buttons: Buttons::FIRE, ..play.idle(seat) };
            // `idle` claims the tick before the one that handles it.
            command.view_tick -= ago_ticks - 1;
            let off = vec3(random.f32() - 0.5, random.f32() - 0.5, random.f32() - 0.5);
            command.look_along(target + CHEST + off - play.me(seat).eye());
            play.send(seat, command);
        }
        play.step();
    }
    *play.game.comparison().unwrap()
}

#[test]
fn poses_of_every_fourth_tick_give_the_verdicts_of_all_poses() {
    // One tick of interpolation, and the round trip in ticks of 7.8 ms: 0 to 20 ms, and 60 ms.
    for (rtt_us, ago_ticks) in [(0, 1), (8_000, 2), (16_000, 3), (20_000, 4), (60_000, 8)] {
        let all = (4..8).map(|seed| compared(rtt_us, ago_ticks, seed));
        let (shots, equal, error_m) = all.fold((0, 0, 0.0f64), |(shots, equal, error_m), one| {
            (shots + one.shots, equal + one.equal, error_m.max(one.largest_bone_error_m))
        });
        println!("{rtt_us} us: {equal} of {shots}, bones {error_m:.3} m");
        assert!(shots >= 200, "{shots} shots");
        assert!(equal as f64 >= 0.995 * shots as f64, "{rtt_us} us: {equal} of {shots} shots");
        assert!(error_m < 0.15, "{rtt_us} us: {error_m} m");
    }
}

#[test]
fn a_fog_that_ignores_latency_is_found_out_and_the_real_one_hides_nobody_who_is_seen() {
    let faults = |phase: RoundPhase, ignores_latency: bool| {
        let rules = Rules { live_s: if phase == RoundPhase::End { 1.0 } else { 10.0 }, end_s: 10.0, ..quick() };
        let mut play = Play::new(course(), rules, 3);
        if ignores_latency {
            play.game.ignore_latency();
        }
        (0..10).for_each(|seat| play.rtt(seat, 150_000));
        play.until(phase);
        let mut audit = play.game.fog_audit(100);
        // Seat 0 runs out from behind the thin wall, time and again; seat 5 stands on the other side.
        for _ in 0..6 {
            play.put(0, vec3(18.0, 0.0, 2.0), Vec3::Z);
            play.put(5, vec3(24.0, 0.0, 0.0), Vec3::Z);
            for tick in 0..130 {
                play.hold(0, 1, |command| command.forward = if tick < 40 { 0 } else { 127 });
                play.game.watch_fog(&mut audit);
            }
        }
        assert!(audit.counts().hidden > 100, "{:?}", audit.counts());
        assert_eq!(play.game.round_phase(), phase);
        audit.counts().hidden_but_visible
    };
    // The players go on in the end phase, and the fog does.
    for phase in [RoundPhase::Live, RoundPhase::End] {
        assert_eq!(faults(phase, false), 0, "{phase:?}");
        assert!(faults(phase, true) > 0, "{phase:?}");
    }
}
