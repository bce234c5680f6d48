//! The README, whose example is compiled, has the example of the manual page.

#[test]
fn the_manual_has_the_example_of_the_readme() {
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fleet.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let (_, example) = include_str!("../../README.md").split_once("```rust,no_run\n").unwrap();
    let (example, _) = example.split_once("```\n").unwrap();
    assert!(manual.contains(example), "put this into docs/fleet.md:\n{example}");
}
