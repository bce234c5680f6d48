//! A chart over virtual time, as SVG with HTML labels.
//!
//! Only the SVG is stretched to the width of the page: labels are HTML, and stay legible on a phone. Paths
//! use the units of their axes, so that the script can read values from them.

use std::fmt::Write as _;

use super::bands::Band;
use super::downsample::Point;
use super::escape::Escaped;
use super::scale::{Scale, Tick};

/// The size of the SVG before it is stretched.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 200.0;
/// The share of its width that a column leaves free on either side. The script uses the same number.
const GAP: f64 = 0.05;

/// A chart, or a sentence if there is nothing to draw.
pub(super) struct Chart {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// How to read it.
    pub(super) note: String,
    pub(super) drawing: Result<Drawing, &'static str>,
}

pub(super) struct Drawing {
    /// For screen readers.
    pub(super) description: String,
    pub(super) unit: Unit,
    /// The vertical axis.
    pub(super) values: Scale,
    /// From back to front.
    pub(super) series: Vec<Series>,
    /// A horizontal line with its name.
    pub(super) rule: Option<(String, f64)>,
}

/// The unit of the values, for the script.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    Count,
    /// The decimal logarithm of seconds.
    Decade,
}

pub(super) struct Series {
    pub(super) name: String,
    /// A figure for the whole run, for the legend.
    pub(super) total: String,
    /// The CSS class of its colour.
    pub(super) colour: &'static str,
    pub(super) shape: Shape,
}

pub(super) enum Shape {
    Line(Vec<Point>),
    /// A line with a filled area below it.
    Area(Vec<Point>),
    Columns(Vec<Column>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Column {
    /// Begin and end, in seconds.
    pub(super) over: (f64, f64),
    /// Lower and upper value.
    pub(super) reach: (f64, f64),
}

/// The time axis and the bands, the same in all charts.
pub(super) struct Background {
    pub(super) time: Scale,
    pub(super) bands: Vec<Band>,
}

impl Chart {
    fn html(&self, background: &Background) -> String {
        let Self { id, title, note, drawing } = self;
        let note = if note.is_empty() { String::new() } else { format!("<p>{}</p>", Escaped(note)) };
        let (legend, inside) = match drawing {
            Ok(drawing) => (drawing.legend(id), drawing.html(background)),
            Err(instead) => (String::new(), format!("<p class=\"instead\">{}</p>\n", Escaped(instead))),
        };
        format!(
            "<figure class=\"chart\" id=\"{id}\">\n<figcaption><h3>{title}</h3>{note}{legend}</figcaption>\n{inside}</figure>\n"
        )
    }
}

/// Charts one below the other. All reserve the same width for labels, so that their time axes align.
pub(super) fn stack(charts: &[Chart], background: &Background) -> String {
    let drawings = charts.iter().filter_map(|chart| chart.drawing.as_ref().ok());
    let labels = drawings.flat_map(|drawing| &drawing.values.ticks).map(|tick| tick.label.chars().count());
    let mut html = format!("<div class=\"charts\" style=\"--label:{}\">\n", labels.max().unwrap_or(0).max(4));
    charts.iter().for_each(|chart| html.push_str(&chart.html(background)));
    html.push_str("</div>\n");
    html
}

impl Drawing {
    /// With an axis from zero to at least `most`.
    pub(super) fn counts(description: String, most: f64, series: Vec<Series>) -> Self {
        Self { description, unit: Unit::Count, values: Scale::counts(most), series, rule: None }
    }

    fn html(&self, background: &Background) -> String {
        let unit = match self.unit {
            Unit::Count => "count",
            Unit::Decade => "decade",
        };
        format!(
            "<div class=\"plot\">\n<div class=\"values\" aria-hidden=\"true\">{values}</div>\n\
             <div class=\"drawing\"><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"{description}\" data-unit=\"{unit}\" data-span=\"{span}\">\n{grid}{bands}{series}{rule}</svg></div>\n\
             <div class=\"times\" aria-hidden=\"true\">{times}</div>\n</div>\n",
            values = labels(&self.values, "bottom"),
            description = Escaped(&self.description),
            span = short(background.time.high),
            grid = self.grid(background),
            bands = bands(background),
            series = self.shapes(background),
            rule = self.rule(),
            times = labels(&background.time, "left"),
        )
    }

    fn legend(&self, id: &str) -> String {
        let mut legend = String::from("<ul class=\"legend\">");
        for (index, series) in self.series.iter().enumerate() {
            let shape = if matches!(series.shape, Shape::Columns(_)) { "block" } else { "stroke" };
            let _ = write!(
                legend,
                "<li><i class=\"{shape} {colour}\"></i>{name} <b id=\"{id}-{index}\">{total}</b></li>",
                colour = series.colour,
                name = Escaped(&series.name),
                total = Escaped(&series.total),
            );
        }
        if let Some((name, _)) = &self.rule {
            let _ = write!(legend, "<li><i class=\"dashes\"></i>{}</li>", Escaped(name));
        }
        legend.push_str("</ul>");
        legend
    }

    fn grid(&self, background: &Background) -> String {
        let mut lines = String::from("<path class=\"grid\" d=\"");
        for Tick { at, .. } in &self.values.ticks {
            let _ = write!(lines, "M0 {}H{WIDTH}", short(HEIGHT * (1.0 - self.values.share(*at))));
        }
        lines.push_str("\"/>\n<path class=\"notch\" d=\"");
        for Tick { at, .. } in &background.time.ticks {
            let _ = write!(lines, "M{} {HEIGHT}v4", short(WIDTH * background.time.share(*at)));
        }
        lines.push_str("\"/>\n");
        lines
    }

    fn shapes(&self, background: &Background) -> String {
        let (time, values) = (&background.time, &self.values);
        let across = WIDTH / (time.high - time.low);
        let upward = HEIGHT / (values.high - values.low);
        let mut shapes = format!(
            "<g transform=\"matrix({across:.9} 0 0 {:.9} 0 {:.6})\">\n",
            -upward,
            upward * values.high
        );
        for (index, series) in self.series.iter().enumerate() {
            let (kind, path) = match &series.shape {
                Shape::Line(points) => ("line", stroke(points)),
                Shape::Area(points) => {
                    let _ = writeln!(
                        shapes,
                        "<path class=\"below {}\" d=\"{}\"/>",
                        series.colour,
                        area(points, values.low)
                    );
                    ("line", stroke(points))
                }
                Shape::Columns(columns) => ("columns", blocks(columns)),
            };
            let _ = writeln!(
                shapes,
                "<path class=\"{kind} {}\" data-series=\"{index}\" d=\"{path}\"/>",
                series.colour
            );
        }
        shapes.push_str("</g>\n");
        shapes
    }

    fn rule(&self) -> String {
        let Some((_, at)) = &self.rule else { return String::new() };
        format!(
            "<path class=\"rule\" d=\"M0 {}H{WIDTH}\"/>\n",
            short(HEIGHT * (1.0 - self.values.share(*at)))
        )
    }
}

fn bands(background: &Background) -> String {
    let mut bands = String::new();
    for band in &background.bands {
        let (from, to) = (WIDTH * background.time.share(band.from), WIDTH * background.time.share(band.to));
        let _ = writeln!(
            bands,
            "<rect class=\"band\" x=\"{}\" width=\"{}\" height=\"{HEIGHT}\"><title>{}</title></rect>",
            short(from),
            // A narrower band is hard to point at.
            short((to - from).max(1.5)),
            Escaped(&band.name())
        );
    }
    bands
}

/// The labels of an axis. CSS hides every other one on narrow screens.
fn labels(scale: &Scale, side: &str) -> String {
    let mut labels = String::new();
    for (index, Tick { at, label }) in scale.ticks.iter().enumerate() {
        let share = scale.share(*at);
        let class = match (index % 2, share > 0.97) {
            (0, false) => "",
            (0, true) => " class=\"last\"",
            (_, false) => " class=\"spare\"",
            (_, true) => " class=\"spare last\"",
        };
        let _ = write!(
            labels,
            "<span{class} style=\"{side}:{}%\">{}</span>",
            short(share * 100.0),
            Escaped(label)
        );
    }
    labels
}

fn stroke(points: &[Point]) -> String {
    let mut path = String::new();
    for (index, (at, value)) in points.iter().enumerate() {
        let _ = write!(path, "{}{} {}", if index == 0 { 'M' } else { 'L' }, short(*at), short(*value));
    }
    if points.len() == 1 {
        // A line of zero length is drawn as a dot.
        path.push_str("h0");
    }
    path
}

fn area(points: &[Point], floor: f64) -> String {
    let ends = points.first().zip(points.last());
    ends.map_or_else(String::new, |(first, last)| {
        format!("{}L{} {floor}L{} {floor}Z", stroke(points), short(last.0), short(first.0))
    })
}

fn blocks(columns: &[Column]) -> String {
    let mut path = String::new();
    for Column { over, reach } in columns {
        let gap = (over.1 - over.0) * GAP;
        let _ = write!(
            path,
            "M{} {}V{}H{}V{}Z",
            short(over.0 + gap),
            short(reach.0),
            short(reach.1),
            short(over.1 - gap),
            short(reach.0)
        );
    }
    path
}

/// A number with at most three decimals.
fn short(number: f64) -> String {
    let text = format!("{number:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_in_units_of_their_axes() {
        assert_eq!(stroke(&[(0.0, 5.0), (1.5, 0.3333)]), "M0 5L1.5 0.333");
        assert_eq!(stroke(&[(7.0, 5.0)]), "M7 5h0");
        assert_eq!(area(&[(0.0, 5.0), (2.0, 6.0)], 0.0), "M0 5L2 6L2 0L0 0Z");
        assert_eq!(area(&[], 0.0), "");
        assert_eq!(blocks(&[Column { over: (10.0, 20.0), reach: (1.0, 4.0) }]), "M10.5 1V4H19.5V1Z");
        assert_eq!(short(-0.000_01), "0");
    }

    #[test]
    fn hostile_names_stay_names() {
        let evil = "</svg><script>alert(1)</script>\"";
        let series = Series {
            name: evil.to_owned(),
            total: evil.to_owned(),
            colour: "c1",
            shape: Shape::Line(vec![(0.0, 1.0)]),
        };
        let chart = Chart {
            id: "x",
            title: "X",
            note: evil.to_owned(),
            drawing: Ok(Drawing {
                description: evil.to_owned(),
                unit: Unit::Count,
                values: Scale::counts(1.0),
                series: vec![series],
                rule: Some((evil.to_owned(), 1.0)),
            }),
        };
        let time = Scale::time(std::time::Duration::from_secs(1));
        let html = chart.html(&Background { time, bands: Vec::new() });
        assert!(!html.contains("<script") && !html.contains("\"\""), "{html}");
    }
}
