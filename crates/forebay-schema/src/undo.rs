//! The parts of a file that undo it. goose, dbmate and sql-migrate keep them in the same file, after a mark in a comment.

/// Marks of goose, dbmate and sql-migrate, in lower case: what a migration does begins here.
const UP: [&str; 3] = ["+goose up", "migrate:up", "+migrate up"];
/// What undoes it begins here.
const DOWN: [&str; 3] = ["+goose down", "migrate:down", "+migrate down"];

/// The text without what would undo it. Lines stay where they are.
pub(crate) fn leave_out(text: &str) -> String {
    let (mut has_marks, mut is_left_out) = (false, false);
    let mut kept = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        if let Some(comment) = line.trim_start().strip_prefix("--") {
            let words: Vec<&str> = comment.split_whitespace().collect();
            let comment = words.join(" ").to_ascii_lowercase();
            let begins = |marks: &[&str]| marks.iter().any(|mark| comment.starts_with(mark));
            if begins(&UP) {
                (has_marks, is_left_out) = (true, false);
            } else if begins(&DOWN) {
                is_left_out = has_marks;
            }
        }
        kept += if is_left_out { if line.ends_with('\n') { "\n" } else { "" } } else { line };
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_the_mark_is_left_out() {
        for (up, down) in [
            ("-- +goose Up", "-- +goose Down"),
            ("--migrate:up", "-- migrate:down transaction:false"),
            ("-- +migrate Up", "--  +migrate  Down"),
        ] {
            let text = format!("{up}\nCREATE TABLE t (i int);\n{down}\nDROP TABLE t;\n");
            assert_eq!(leave_out(&text), format!("{up}\nCREATE TABLE t (i int);\n\n\n"), "{up}");
            let turned = format!("{up}\n{down}\nDROP TABLE t;\n{up}\nSELECT 1;");
            assert_eq!(leave_out(&turned), format!("{up}\n\n\n{up}\nSELECT 1;"), "{up}");
        }
        // Without the first mark, it is an ordinary comment.
        let plain = "SELECT 1;\n-- migrate:down the old rows\nSELECT 2;";
        assert_eq!(leave_out(plain), plain);
    }
}
