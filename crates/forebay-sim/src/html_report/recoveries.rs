//! The table of recoveries.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::time::Duration;

use super::escape::Escaped;
use crate::judge::Recovery;
use crate::outcome::{about, grouped};

/// Nobody reads a longer table.
const ROWS: usize = 20;

pub(super) fn recoveries(recoveries: &[Recovery]) -> String {
    let mut html = String::from("<section>\n<h2>Recoveries</h2>\n");
    if recoveries.is_empty() {
        html.push_str("<p class=\"instead\">No disturbance.</p>\n</section>\n");
        return html;
    }
    let mut rows: Vec<&Recovery> = recoveries.iter().collect();
    if rows.len() > ROWS {
        // One that never ended is the slowest.
        rows.sort_by_key(|recovery| Reverse(recovery.took.unwrap_or(Duration::MAX)));
        rows.truncate(ROWS);
        let _ = writeln!(
            html,
            "<p class=\"lead\">The {ROWS} slowest of {}, slowest first.</p>",
            grouped(recoveries.len() as u64)
        );
    }
    html.push_str(
        "<div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"Recoveries\"><table class=\"recoveries\">\n<thead><tr>\
         <th scope=\"col\">disturbance</th><th scope=\"col\" class=\"number\">began</th>\
         <th scope=\"col\" class=\"number\">missing</th><th scope=\"col\" class=\"number\">took</th>\
         <th scope=\"col\" class=\"number\">allowed</th></tr></thead>\n<tbody>\n",
    );
    for recovery in rows {
        let took = recovery.took.map_or_else(|| "not judged".to_owned(), about);
        let allowed = recovery.allowed.map_or_else(|| "–".to_owned(), about);
        let _ = writeln!(
            html,
            "<tr{}><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            if recovery.late { " class=\"late\"" } else { "" },
            Escaped(&recovery.disturbance),
            about(recovery.began),
            grouped(recovery.deficit as u64),
            took,
            allowed
        );
    }
    html.push_str("</tbody></table></div>\n</section>\n");
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recovery(took: Option<u64>) -> Recovery {
        Recovery {
            disturbance: format!("crash <{took:?}>"),
            began: Duration::from_secs(60),
            over: None,
            deficit: 12_345,
            limiter_time: Duration::ZERO,
            allowed: Some(Duration::from_secs(30)),
            took: took.map(Duration::from_secs),
            late: took.is_none_or(|took| took > 30),
        }
    }

    #[test]
    fn only_the_slowest_of_many_are_shown() {
        let mut all: Vec<_> = (0..1000).map(|took| recovery(Some(took))).collect();
        all.push(recovery(None));
        let html = recoveries(&all);
        assert_eq!(html.matches("<tr").count(), 1 + ROWS);
        assert!(html.contains("The 20 slowest of 1,001"), "{html}");
        assert!(html.contains("crash &lt;None&gt;") && html.contains("not judged"), "{html}");
        assert!(html.contains("&lt;Some(981)&gt;") && !html.contains("&lt;Some(980)&gt;"), "{html}");
    }

    #[test]
    fn few_are_shown_in_their_order() {
        let html = recoveries(&[recovery(Some(3)), recovery(Some(31))]);
        assert!(
            html.contains("<tr><th scope=\"row\">crash &lt;Some(3)&gt;</th><td>1m0s</td><td>12,345</td>"),
            "{html}"
        );
        assert_eq!(html.matches("class=\"late\"").count(), 1, "{html}");
        assert!(recoveries(&[]).contains("No disturbance."));
    }
}
