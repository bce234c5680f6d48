//! The table of assertions.

use std::fmt::Write as _;

use super::escape::Escaped;
use crate::judge::{Assertion, Verdict};
use crate::outcome::grouped;

/// What was asserted, and what was found against it.
pub(super) fn assertions(verdicts: &[Verdict]) -> String {
    let mut html = String::from(
        "<section>\n<h2>Assertions</h2>\n\
         <div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"Assertions\"><table class=\"assertions\">\n\
         <thead><tr><th scope=\"col\">assertion</th><th scope=\"col\">what it means</th>\
         <th scope=\"col\">result</th></tr></thead>\n<tbody>\n",
    );
    for verdict in verdicts {
        let Verdict { assertion, broken, findings } = verdict;
        let (class, result) = match broken {
            0 => ("", "✓ holds".to_owned()),
            1 => (" class=\"failed\"", "✗ failed".to_owned()),
            many => (" class=\"failed\"", format!("✗ failed {} times", grouped(*many))),
        };
        let mut found = String::new();
        if !verdict.holds() {
            found.push_str("<ul>");
            for finding in findings {
                let _ = write!(found, "<li>{}</li>", Escaped(finding));
            }
            let kept = findings.len() as u64;
            if *broken > kept {
                let _ = write!(found, "<li>and {} more</li>", grouped(broken - kept));
            }
            found.push_str("</ul>");
        }
        let _ = writeln!(
            html,
            "<tr id=\"{assertion}\"{class}><th scope=\"row\">{assertion}</th><td>{}{found}</td><td>{result}</td></tr>",
            meaning(*assertion)
        );
    }
    html.push_str("</tbody></table></div>\n</section>\n");
    html
}

/// What an assertion says, for those who do not know its name.
const fn meaning(assertion: Assertion) -> &'static str {
    match assertion {
        Assertion::MaxConnects => "The cluster never sees more connects in one second than allowed.",
        Assertion::Converges => "From the cold start, every instance owns its connections in time.",
        Assertion::Stable => "Once whole, the fleet stays whole unless something goes wrong.",
        Assertion::MaxClosures => "Reservoirs never close more connections in one second than allowed.",
        Assertion::ZeroEmpty => "No caller finds the reservoir empty, served later or not.",
        Assertion::MaxRenewals => "In quiet, renewals stay spread out.",
        Assertion::Recovers => "After each disturbance the fleet is whole again in the time allowed.",
        Assertion::NoRefusals => "The cluster’s limits never make it refuse a connect.",
        Assertion::Bound => "No instance owns more connections than its bound.",
        Assertion::Lives => "No connection is lent dead, past its life or in its guard window.",
        Assertion::NoAgedSessions => "The cluster never has to end a session for its age.",
        Assertion::FirstComeFirstServed => "Callers are served in the order they came.",
        Assertion::NoFailedCheckouts => {
            "No checkout fails, but where an instance lacks connections in a disturbance."
        }
        Assertion::Answered => "Every caller is answered by the time it was promised.",
        Assertion::Leased => "No connection is open without a lease.",
        Assertion::LedgerAddsUp => "Each item of the ledger adds up after every write.",
        Assertion::WithinLimit => {
            "The fleet never holds more than its limit and what those have who were cut off."
        }
        Assertion::Reaped => "What the dead held is free again in time.",
        Assertion::WithinBucket => "The fleet never connects faster than its bucket.",
        Assertion::NoLeaks => "At the end nothing is open and no lease is held.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_of_those_that_failed_are_told() {
        let verdict = |assertion, broken, findings: &[&str]| Verdict {
            assertion,
            broken,
            findings: findings.iter().map(|finding| (*finding).to_owned()).collect(),
        };
        let html = assertions(&[
            verdict(Assertion::Bound, 0, &[]),
            verdict(Assertion::Lives, 1234, &["at 3s: <b>", "at 4s: it"]),
        ]);
        assert!(html.contains("<td>✓ holds</td>"), "{html}");
        assert!(html.contains("✗ failed 1,234 times"), "{html}");
        assert!(
            html.contains("<li>at 3s: &lt;b&gt;</li><li>at 4s: it</li><li>and 1,232 more</li>"),
            "{html}"
        );
    }
}
