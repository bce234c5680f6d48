//! A run as one page: what it came to, how it went, what was found.
//!
//! The page needs nothing but itself: no network, no fonts, and no script but for the values under the pointer.

mod assertions;
mod bands;
mod chart;
mod course;
mod escape;
mod recoveries;
mod scale;
mod summary;
mod thin;

use std::fmt::Write as _;

use crate::outcome::Outcome;
use course::Course;
use escape::Escaped;

const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");

/// A run as one HTML page that needs nothing but itself.
#[must_use]
pub fn page(outcome: &Outcome) -> String {
    let course = Course::new(outcome);
    let ground = course.ground();
    let shaded =
        if ground.bands.is_empty() { "" } else { " Shaded: something was wrong, or not yet made good." };
    let title = format!("{}, seed {}: {}", outcome.scenario, outcome.seed, summary::headline(outcome));
    let mut page = String::new();
    // The policy makes sure of what the page promises, whatever it is opened with.
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{summary}\
         <section id=\"course\">\n<h2>Over time</h2>\n<p class=\"lead\">Virtual time, {unit}.{shaded}</p>\n{charts}</section>\n\
         {recoveries}{assertions}</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        title = Escaped(&title),
        summary = summary::summary(outcome),
        unit = course.time_unit(),
        charts = chart::stack(&course.charts(), &ground),
        recoveries = recoveries::recoveries(&outcome.recoveries),
        assertions = assertions::assertions(&outcome.verdicts),
    );
    page
}
