//! The manual page knows every flag and field.

use crate::place::Place;
use crate::server::text;

fn manual() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor.md")).expect("the page")
}

#[test]
fn flags_and_fields_are_in_the_manual() {
    let (place, manual) = (Place::new(), manual());
    let help = place.run(&["--help"]);
    let flags = text(&help.stdout).split_whitespace().filter(|word| word.starts_with("--"));
    for flag in flags.map(|flag| flag.trim_matches(|letter: char| !letter.is_ascii_lowercase())) {
        assert!(manual.contains(&format!("`--{flag}")) || flag == "help", "--{flag}");
    }
    let found = place.examine(&["--only", "configuration"]);
    let fields = found.record.as_object().unwrap().keys();
    let of_finding = found.record["findings"][0].as_object().unwrap().keys();
    for field in fields.chain(of_finding) {
        assert!(manual.contains(&format!("| `{field}` |")), "{field}");
    }
}
