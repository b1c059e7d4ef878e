//! Two kinds of plots as SVG, with logarithmic axes: what is compared here lies factors apart, and a power law is a line.
//!
//! White ground, so that they can be read in any theme; no scripts, no fonts of their own.

use std::fmt::Write;

use throng_report::figure;

/// Okabe and Ito, "Color Universal Design" (2008), without yellow, which white swallows; then two greys.
const COLOURS: [&str; 9] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#777777", "#aa4499"];
const WIDTH: f64 = 760.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 46.0;
/// Room for names on the right of lines and on the left of dots.
const NAMES: f64 = 190.0;
const ROW: f64 = 26.0;
const LINES_HEIGHT: f64 = 420.0;
/// The least distance between two names beside lines.
const NAME_SPACING: f64 = 15.0;

/// A named curve.
pub(super) struct Line {
    pub(super) name: String,
    /// From left to right; points that are not above 0 are left out.
    pub(super) points: Vec<Spot>,
}

/// A point of a curve.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub(super) x: f64,
    pub(super) y: f64,
    /// Drawn as a ring: it is not to be taken as the others are.
    pub(super) is_hollow: bool,
}

/// A named value with its range.
pub(super) struct Dot {
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) range: [f64; 2],
    /// Drawn as a ring: it is not to be taken as the others are.
    pub(super) is_hollow: bool,
}

/// Names of a plot and its axes.
pub(super) struct Titles<'a> {
    pub(super) plot: &'a str,
    pub(super) x: &'a str,
    /// Unused by dots.
    pub(super) y: &'a str,
}

/// A logarithmic axis from `low` to `high`, on the screen from `from` to `to`.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// An axis for these values, with a little room; `None` if none of them is above 0.
    fn around(values: impl Iterator<Item = f64>, [from, to]: [f64; 2]) -> Option<Axis> {
        let positive = values.filter(|value| value.is_finite() && *value > 0.0);
        let (low, high) = positive.fold((f64::MAX, 0f64), |(low, high), value| (low.min(value), high.max(value)));
        (high > 0.0).then_some(Axis { low: low / 1.3, high: high * 1.3, from, to })
    }

    fn place(&self, value: f64) -> f64 {
        let share = (value / self.low).ln() / (self.high / self.low).ln();
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// 1, 2 and 5 of each power of ten; only the powers themselves where that would be too many.
    fn ticks(&self) -> Vec<f64> {
        let decades = (self.low.log10().floor() as i32)..=(self.high.log10().ceil() as i32);
        let steps: &[f64] = if self.high / self.low > 2e3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let all = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
        all.filter(|tick| (self.low..=self.high).contains(tick)).collect()
    }
}

/// Curves over a logarithmic x, each with its name at its end.
pub(super) fn lines(titles: &Titles<'_>, lines: &[Line]) -> String {
    let [left, right, low] = [64.0, WIDTH - NAMES, LINES_HEIGHT - BOTTOM];
    let all = || lines.iter().flat_map(|line| line.points.iter().copied());
    let axes =
        Axis::around(all().map(|spot| spot.x), [left, right]).zip(Axis::around(all().map(|spot| spot.y), [low, TOP]));
    let mut body = String::new();
    if let Some((x, y)) = axes {
        let mut sizes: Vec<f64> = all().map(|spot| spot.x).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        sizes.iter().for_each(|&tick| vertical(&mut body, x.place(tick), [TOP, low], &figure(tick)));
        y.ticks().into_iter().for_each(|tick| horizontal(&mut body, y.place(tick), [left, right], &figure(tick)));
        let mut names = Vec::new();
        for (number, line) in lines.iter().enumerate() {
            let spots = line.points.iter().filter(|spot| spot.y > 0.0);
            let places: Vec<Spot> =
                spots.map(|spot| Spot { x: x.place(spot.x), y: y.place(spot.y), ..*spot }).collect();
            let Some(last) = places.last() else { continue };
            curve(&mut body, &places, colour(number));
            names.push((last.y, number));
        }
        for (place, number) in apart(names) {
            text(&mut body, [right + 10.0, place + 4.0], "start", colour(number), &lines[number].name);
        }
    }
    text(&mut body, [(left + right) / 2.0, LINES_HEIGHT - 10.0], "middle", "#333", titles.x);
    text(&mut body, [12.0, TOP - 8.0], "start", "#333", titles.y);
    page(titles.plot, LINES_HEIGHT, &body)
}

/// A row for each name, with its value as a dot and its range as a bar, over a logarithmic x.
pub(super) fn dots(titles: &Titles<'_>, dots: &[Dot]) -> String {
    let height = TOP + ROW * dots.len() as f64 + BOTTOM;
    let [left, right, low] = [NAMES, WIDTH - 70.0, height - BOTTOM];
    let values = dots.iter().flat_map(|dot| [dot.value, dot.range[0], dot.range[1]]);
    let mut body = String::new();
    if let Some(x) = Axis::around(values, [left, right]) {
        x.ticks().into_iter().for_each(|tick| vertical(&mut body, x.place(tick), [TOP, low], &figure(tick)));
        for (number, dot) in dots.iter().enumerate() {
            let y = TOP + ROW * (number as f64 + 0.5);
            text(&mut body, [left - 10.0, y + 4.0], "end", "#333", &dot.name);
            if dot.value.is_nan() || dot.value <= 0.0 {
                text(&mut body, [left + 8.0, y + 4.0], "start", "#777", "no figure");
                continue;
            }
            let [from, to] = dot.range.map(|end| x.place(end));
            let colour = colour(number);
            let _ = writeln!(
                body,
                "<path d=\"M{from:.1} {y:.1}H{to:.1}\" stroke=\"{colour}\" stroke-width=\"6\" stroke-opacity=\".35\"/>"
            );
            disc(&mut body, &Spot { x: x.place(dot.value), y, is_hollow: dot.is_hollow }, 5.0, colour);
            text(&mut body, [to.max(x.place(dot.value)) + 10.0, y + 4.0], "start", "#333", &figure(dot.value));
        }
    }
    text(&mut body, [(left + right) / 2.0, height - 10.0], "middle", "#333", titles.x);
    page(titles.plot, height, &body)
}

fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

/// Moves names down until none covers another, in the order of their positions.
fn apart(mut names: Vec<(f64, usize)>) -> Vec<(f64, usize)> {
    names.sort_by(|a, b| a.0.total_cmp(&b.0));
    for place in 1..names.len() {
        names[place].0 = names[place].0.max(names[place - 1].0 + NAME_SPACING);
    }
    names
}

fn curve(body: &mut String, places: &[Spot], colour: &str) {
    let points: Vec<String> = places.iter().map(|spot| format!("{:.1},{:.1}", spot.x, spot.y)).collect();
    let _ = writeln!(
        body,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
        points.join(" ")
    );
    places.iter().for_each(|spot| disc(body, spot, 3.5, colour));
}

/// A point on the screen, or a ring.
fn disc(body: &mut String, Spot { x, y, is_hollow }: &Spot, radius: f64, colour: &str) {
    let fill = if *is_hollow { "#fff" } else { colour };
    let _ = writeln!(
        body,
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
    );
}

fn vertical(body: &mut String, x: f64, [top, low]: [f64; 2], label: &str) {
    let _ = writeln!(body, "<path d=\"M{x:.1} {top:.1}V{low:.1}\" stroke=\"#ddd\"/>");
    text(body, [x, low + 16.0], "middle", "#555", label);
}

fn horizontal(body: &mut String, y: f64, [left, right]: [f64; 2], label: &str) {
    let _ = writeln!(body, "<path d=\"M{left:.1} {y:.1}H{right:.1}\" stroke=\"#ddd\"/>");
    text(body, [left - 6.0, y + 4.0], "end", "#555", label);
}

fn text(body: &mut String, [x, y]: [f64; 2], anchor: &str, colour: &str, text: &str) {
    let text = escaped(text);
    let _ = writeln!(body, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>");
}

fn page(title: &str, height: f64, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n<title>{title}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"12\" y=\"20\" font-size=\"14\" font-weight=\"bold\" fill=\"#222\">{title}</text>\n{body}</svg>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TITLES: Titles<'_> = Titles { plot: "cost & growth", x: "players", y: "µs" };

    #[test]
    fn a_logarithmic_axis_puts_equal_factors_at_equal_distances() {
        let axis = Axis::around([1.0, 100.0].into_iter(), [0.0, 100.0]).unwrap();
        let [first, second, third] = [1.0, 10.0, 100.0].map(|value| axis.place(value));
        assert!((second - first - (third - second)).abs() < 1e-9);
        assert_eq!(axis.ticks(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert!(Axis::around([0.0, f64::NAN].into_iter(), [0.0, 1.0]).is_none());
    }

    #[test]
    fn a_line_has_its_points_its_name_and_no_raw_markup() {
        let points = [(25.0, 1.0), (100.0, 4.0), (400.0, 0.0)].map(|(x, y)| Spot { x, y, is_hollow: x == 100.0 });
        let line = Line { name: "<legacy>".to_owned(), points: points.to_vec() };
        let svg = lines(&TITLES, &[line]);
        assert_eq!(svg.matches("<circle").count(), 2, "a point at 0 has no place on a logarithmic axis: {svg}");
        assert_eq!(svg.matches("fill=\"#fff\" stroke").count(), 1, "the second point is a ring: {svg}");
        assert!(svg.contains("&lt;legacy&gt;") && svg.contains("cost &amp; growth") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn a_row_without_a_figure_stays_and_says_so() {
        let dot =
            |name: &str, value: f64| Dot { name: name.to_owned(), value, range: [value, value], is_hollow: false };
        let svg = dots(&TITLES, &[dot("throng", 0.5), dot("failed", 0.0)]);
        assert!(svg.contains("failed") && svg.contains("no figure") && svg.matches("<circle").count() == 1, "{svg}");
    }

    #[test]
    fn names_do_not_cover_each_other() {
        let places = apart(vec![(10.0, 0), (11.0, 1), (9.0, 2)]);
        assert!(places.windows(2).all(|pair| pair[1].0 - pair[0].0 >= NAME_SPACING));
    }
}
