//! Drawings without HTML: lines, circles and rectangles with titles.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::render::escaped;

/// A drawing, as a map from above.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// Its heading; empty for none.
    pub title: String,
    /// A description for readers who do not see it.
    pub alternative: String,
    /// Width and height; it is scaled to the width of the page.
    pub size: (f64, f64),
    /// On narrower screens than this many pixels it scrolls in its own box; 0: it shrinks.
    pub least_width: u32,
    /// Colours with their meaning.
    pub key: Vec<(String, String)>,
    /// The drawing, the lowest first.
    pub marks: Vec<Mark>,
}

/// A shape, its colours and its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// The form.
    pub shape: Shape,
    /// Colour of the inside: the name of a part, or a grey from `grey-0` to `grey-9`; empty: none.
    #[serde(default)]
    pub fill: String,
    /// Colour of the line; empty: none.
    #[serde(default)]
    pub line: String,
    /// Width of the line; 0 is 1.
    #[serde(default)]
    pub width: f32,
    /// Opacity, 0 to 1; 0 is 1.
    #[serde(default)]
    pub opacity: f32,
    /// Shown when it is pointed at.
    #[serde(default)]
    pub title: String,
}

/// A form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Shape {
    /// Left, top, width, height.
    Box(f32, f32, f32, f32),
    /// Middle and radius.
    Circle(f32, f32, f32),
    /// Points.
    Path(Vec<(f32, f32)>),
    /// A broken line from one point to another.
    Dashes(f32, f32, f32, f32),
    /// Left, base line, size and text.
    Text(f32, f32, f32, String),
}

impl Default for Shape {
    fn default() -> Shape {
        Shape::Path(Vec::new())
    }
}

impl Picture {
    /// As SVG.
    pub(crate) fn svg(&self) -> String {
        let (width, height) = self.size;
        let mut svg = format!(
            "<svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{}\" style=\"min-width:{}px\">",
            escaped(&self.alternative),
            self.least_width
        );
        self.marks.iter().for_each(|mark| mark.write(&mut svg));
        svg + "</svg>"
    }
}

impl Mark {
    fn write(&self, svg: &mut String) {
        let mut look = String::new();
        match &self.fill[..] {
            "" => look += " fill=\"none\"",
            fill => look += &format!(" fill=\"{}\"", colour(fill)),
        }
        if !self.line.is_empty() {
            look += &format!(" stroke=\"{}\"", colour(&self.line));
        }
        if self.width > 0.0 {
            look += &format!(" stroke-width=\"{}\"", self.width);
        }
        if self.opacity > 0.0 {
            look += &format!(" opacity=\"{}\"", self.opacity);
        }
        let (name, inside) = match &self.shape {
            Shape::Box(x, y, width, height) => {
                let _ = write!(svg, "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"");
                ("rect", String::new())
            }
            Shape::Circle(x, y, radius) => {
                let _ = write!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"");
                ("circle", String::new())
            }
            Shape::Path(points) => {
                let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
                let _ = write!(svg, "<polyline points=\"{}\"", points.join(" "));
                ("polyline", String::new())
            }
            Shape::Dashes(x, y, to_x, to_y) => {
                let _ = write!(
                    svg,
                    "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{to_x:.1}\" y2=\"{to_y:.1}\" stroke-dasharray=\"3 2\""
                );
                ("line", String::new())
            }
            Shape::Text(x, y, size, text) => {
                let _ = write!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size:.1}\"");
                ("text", escaped(text))
            }
        };
        let title = match &self.title[..] {
            "" => String::new(),
            title => format!("<title>{}</title>", escaped(title)),
        };
        let _ = match format!("{inside}{title}") {
            inside if inside.is_empty() => write!(svg, "{look}/>"),
            inside => write!(svg, "{look}>{inside}</{name}>"),
        };
    }
}

/// A colour of the page's style. Names have letters, digits, `-` and `_` only, so they cannot end an attribute.
pub(crate) fn colour(name: &str) -> String {
    let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).collect();
    format!("var(--i-{name})")
}
