//! Shows 10,000 moving points at 10 Hz, and figures twice in a second: how a server of one's own is shown.
//!
//! ```text
//! throng lab serve                                          in one terminal
//! cargo run --release -p throng-live --example points -- 127.0.0.1:8090 60     in another one: for 60 seconds
//! ```

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use throng_live::{Feed, Hello, Map, Sample};

const POINTS: usize = 10_000;
const PICTURES_PER_S: u32 = 10;
const SIDE_M: f64 = 300.0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address: SocketAddr = arguments.next().as_deref().unwrap_or("127.0.0.1:8090").parse()?;
    let seconds: u32 = arguments.next().as_deref().unwrap_or("10").parse()?;
    let map = Map { left_m: 0.0, bottom_m: 0.0, width_m: SIDE_M, height_m: SIDE_M };
    let hello = Hello { workload: "points".to_owned(), unit: "points".to_owned(), map: Some(map), ..Hello::default() };
    let mut feed = Feed::connect(address, hello)?;

    let mut rng = fastrand::Rng::with_seed(1);
    let mut places: Vec<[f64; 2]> = (0..POINTS).map(|_| [rng.f64() * SIDE_M, rng.f64() * SIDE_M]).collect();
    let began = Instant::now();
    let mut spent = Duration::ZERO;
    for number in 0..seconds.min(3_600) * PICTURES_PER_S {
        for [x, y] in &mut places {
            *x = (*x + rng.f64() - 0.5).clamp(0.0, SIDE_M);
            *y = (*y + rng.f64() - 0.5).clamp(0.0, SIDE_M);
        }
        // Only this is a cost of the load.
        let start = Instant::now();
        let time_s = began.elapsed().as_secs_f64();
        if feed.is_watched() {
            feed.points(time_s, places.iter().map(|place| map.point(*place, 0)).collect());
        }
        if number % 5 == 0 {
            feed.sample(Sample { time_s, connected: POINTS as u32, wanted: POINTS as u32, ..Sample::default() });
        }
        spent += start.elapsed();
        let due = began + Duration::from_secs(1) / PICTURES_PER_S * (number + 1);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    let per_s = spent.as_secs_f64() / f64::from(seconds.max(1));
    println!("{:.3} % of a core, {} pictures never left", 100.0 * per_s, feed.replaced());
    Ok(())
}
