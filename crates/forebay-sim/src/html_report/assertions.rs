//! The table of assertions.

use std::fmt::Write as _;

use super::escape::Escaped;
use crate::judge::Verdict;
use crate::outcome::grouped;

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
            assertion.meaning()
        );
    }
    html.push_str("</tbody></table></div>\n</section>\n");
    html
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Assertion;

    #[test]
    fn findings_of_failed_assertions_are_listed() {
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
