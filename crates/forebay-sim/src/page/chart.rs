//! A drawing over virtual time.
//!
//! Only the drawing itself is stretched to the width of the page; its words are text beside it, and stay legible on a
//! telephone. Paths are written in units of their axes, so that the script reads values back from them.

use std::fmt::Write as _;

use super::bands::Band;
use super::escape::Escaped;
use super::scale::{Scale, Tick};
use super::thin::Point;

/// The size of every drawing, before it is stretched.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 200.0;
/// The share of its width that a column leaves free on either side. The script knows it too.
const GAP: f64 = 0.05;

/// A drawing over virtual time, or a sentence that says why there is nothing to draw.
pub(super) struct Chart {
    /// Its anchor on the page.
    pub(super) id: &'static str,
    /// What it shows.
    pub(super) title: &'static str,
    /// What one should know to read it.
    pub(super) note: String,
    /// What is drawn, or what there is to say instead.
    pub(super) drawing: Result<Drawing, &'static str>,
}

/// What is drawn.
pub(super) struct Drawing {
    /// How it would be told to somebody who does not see it.
    pub(super) told: String,
    /// What a value is, for the script.
    pub(super) unit: Unit,
    /// The upright axis.
    pub(super) values: Scale,
    /// From back to front.
    pub(super) series: Vec<Series>,
    /// A value to compare with, by name.
    pub(super) rule: Option<(String, f64)>,
}

/// What a value is.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    /// A number.
    Count,
    /// The power of ten of a number of seconds.
    Decade,
}

/// Something that varies.
pub(super) struct Series {
    /// Its name in the legend.
    pub(super) name: String,
    /// Its figure for the whole run, if there is one.
    pub(super) total: Option<String>,
    /// The class that gives it its colour.
    pub(super) colour: &'static str,
    /// What it looks like.
    pub(super) shape: Shape,
}

/// What something that varies looks like.
pub(super) enum Shape {
    /// A line from point to point,
    Line(Vec<Point>),
    /// the same with the area below it,
    Area(Vec<Point>),
    /// or columns.
    Columns(Vec<Column>),
}

/// One column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Column {
    /// From when to when, in seconds.
    pub(super) over: (f64, f64),
    /// From where to where.
    pub(super) reach: (f64, f64),
}

/// What all drawings have in common.
pub(super) struct Ground {
    /// The axis of time.
    pub(super) time: Scale,
    /// When something was wrong.
    pub(super) bands: Vec<Band>,
}

impl Chart {
    fn html(&self, ground: &Ground) -> String {
        let Self { id, title, note, drawing } = self;
        let note = if note.is_empty() { String::new() } else { format!("<p>{}</p>", Escaped(note)) };
        let (legend, inside) = match drawing {
            Ok(drawing) => (drawing.legend(id), drawing.html(ground)),
            Err(instead) => (String::new(), format!("<p class=\"instead\">{}</p>\n", Escaped(instead))),
        };
        format!(
            "<figure class=\"chart\" id=\"{id}\">\n<figcaption><h3>{title}</h3>{note}{legend}</figcaption>\n{inside}</figure>\n"
        )
    }
}

/// Charts one below the other. Room for the longest label is the same in all, so that their times stand in line.
pub(super) fn stack(charts: &[Chart], ground: &Ground) -> String {
    let drawings = charts.iter().filter_map(|chart| chart.drawing.as_ref().ok());
    let labels = drawings.flat_map(|drawing| &drawing.values.ticks).map(|tick| tick.label.chars().count());
    let mut html = format!("<div class=\"charts\" style=\"--label:{}\">\n", labels.max().unwrap_or(0).max(4));
    charts.iter().for_each(|chart| html.push_str(&chart.html(ground)));
    html.push_str("</div>\n");
    html
}

impl Drawing {
    fn html(&self, ground: &Ground) -> String {
        let unit = match self.unit {
            Unit::Count => "count",
            Unit::Decade => "decade",
        };
        format!(
            "<div class=\"plot\">\n<div class=\"values\" aria-hidden=\"true\">{values}</div>\n\
             <div class=\"drawing\"><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"{told}\" data-unit=\"{unit}\" data-span=\"{span}\">\n{grid}{bands}{series}{rule}</svg></div>\n\
             <div class=\"times\" aria-hidden=\"true\">{times}</div>\n</div>\n",
            values = labels(&self.values, "bottom"),
            told = Escaped(&self.told),
            span = short(ground.time.high),
            grid = self.grid(ground),
            bands = bands(ground),
            series = self.shapes(ground),
            rule = self.rule(),
            times = labels(&ground.time, "left"),
        )
    }

    fn legend(&self, id: &str) -> String {
        let mut legend = String::from("<ul class=\"legend\">");
        for (place, series) in self.series.iter().enumerate() {
            let shape = if matches!(series.shape, Shape::Columns(_)) { "block" } else { "stroke" };
            let _ = write!(
                legend,
                "<li><i class=\"{shape} {colour}\"></i>{name} <b id=\"{id}-{place}\">{total}</b></li>",
                colour = series.colour,
                name = Escaped(&series.name),
                total = series.total.as_deref().map(|total| Escaped(total).to_string()).unwrap_or_default(),
            );
        }
        if let Some((name, _)) = &self.rule {
            let _ = write!(legend, "<li><i class=\"dashes\"></i>{}</li>", Escaped(name));
        }
        legend.push_str("</ul>");
        legend
    }

    fn grid(&self, ground: &Ground) -> String {
        let mut lines = String::from("<path class=\"grid\" d=\"");
        for Tick { at, .. } in &self.values.ticks {
            let _ = write!(lines, "M0 {}H{WIDTH}", short(HEIGHT * (1.0 - self.values.share(*at))));
        }
        lines.push_str("\"/>\n<path class=\"notch\" d=\"");
        for Tick { at, .. } in &ground.time.ticks {
            let _ = write!(lines, "M{} {HEIGHT}v4", short(WIDTH * ground.time.share(*at)));
        }
        lines.push_str("\"/>\n");
        lines
    }

    fn shapes(&self, ground: &Ground) -> String {
        let (time, values) = (&ground.time, &self.values);
        let across = WIDTH / (time.high - time.low);
        let upward = HEIGHT / (values.high - values.low);
        let mut shapes = format!(
            "<g transform=\"matrix({across:.9} 0 0 {:.9} 0 {:.6})\">\n",
            -upward,
            upward * values.high
        );
        for (place, series) in self.series.iter().enumerate() {
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
                "<path class=\"{kind} {}\" data-series=\"{place}\" d=\"{path}\"/>",
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

fn bands(ground: &Ground) -> String {
    let mut bands = String::new();
    for band in &ground.bands {
        let (from, to) = (WIDTH * ground.time.share(band.from), WIDTH * ground.time.share(band.to));
        let _ = writeln!(
            bands,
            "<rect class=\"band\" x=\"{}\" width=\"{}\" height=\"{HEIGHT}\"><title>{}</title></rect>",
            short(from),
            // Hardly anybody can point at less.
            short((to - from).max(1.5)),
            Escaped(&band.name())
        );
    }
    bands
}

/// The words beside an axis. Every other one is dropped where there is no room.
fn labels(scale: &Scale, side: &str) -> String {
    let mut labels = String::new();
    for (place, Tick { at, label }) in scale.ticks.iter().enumerate() {
        let share = scale.share(*at);
        let class = match (place % 2, share > 0.97) {
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
    for (place, (at, value)) in points.iter().enumerate() {
        let _ = write!(path, "{}{} {}", if place == 0 { 'M' } else { 'L' }, short(*at), short(*value));
    }
    if points.len() == 1 {
        // A line to where it is makes a dot.
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

/// A number in as few letters as serve: to the thousandth.
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
            total: Some(evil.to_owned()),
            colour: "c1",
            shape: Shape::Line(vec![(0.0, 1.0)]),
        };
        let chart = Chart {
            id: "x",
            title: "X",
            note: evil.to_owned(),
            drawing: Ok(Drawing {
                told: evil.to_owned(),
                unit: Unit::Count,
                values: Scale::counts(1.0),
                series: vec![series],
                rule: Some((evil.to_owned(), 1.0)),
            }),
        };
        let time = Scale::time(std::time::Duration::from_secs(1));
        let html = chart.html(&Ground { time, bands: Vec::new() });
        assert!(!html.contains("<script") && !html.contains("\"\""), "{html}");
    }
}
