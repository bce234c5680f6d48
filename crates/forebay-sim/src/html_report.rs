//! The HTML report of a run: results, charts, recoveries and assertions.
//!
//! The file is self-contained: no network, no fonts. The script only shows the values under the pointer.

mod assertions;
mod bands;
mod chart;
mod charts;
mod downsample;
mod escape;
mod recoveries;
mod scale;
mod summary;

use std::fmt::Write as _;

use crate::outcome::Outcome;
use charts::RunCharts;
use escape::Escaped;

const STYLE: &str = include_str!("html_report/style.css");
const SCRIPT: &str = include_str!("html_report/script.js");

/// Renders a run as one self-contained HTML file.
#[must_use]
pub fn html_report(outcome: &Outcome) -> String {
    let charts = RunCharts::new(outcome);
    let background = charts.background();
    let shaded =
        if background.bands.is_empty() { "" } else { " Shaded: a disturbance, until the fleet recovered." };
    let title = format!("{}, seed {}: {}", outcome.scenario, outcome.seed, summary::headline(outcome));
    let mut page = String::new();
    // The policy enforces that the file loads nothing.
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
        unit = charts.time_unit(),
        charts = chart::stack(&charts.all(), &background),
        recoveries = recoveries::recoveries(&outcome.recoveries),
        assertions = assertions::assertions(&outcome.verdicts),
    );
    page
}
