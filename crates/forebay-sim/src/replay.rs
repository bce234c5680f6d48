//! The command that repeats a run.

pub(crate) fn command(scenario: &str, seed: u64, settings: &[String]) -> String {
    let mut command = format!("forebay sim {} --seed {seed}", shell_word(scenario));
    for setting in settings {
        command += &format!(" --set {}", shell_word(setting));
    }
    command
}

/// Quotes a word for a shell if necessary.
#[must_use]
pub fn shell_word(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=@%+,".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_can_be_pasted() {
        let settings = ["services.0.targetReady=3".to_owned(), "faults=[{kind: crash}]".to_owned()];
        assert_eq!(
            command("scenarios/local.yaml", 7, &settings),
            "forebay sim scenarios/local.yaml --seed 7 --set services.0.targetReady=3 --set 'faults=[{kind: crash}]'"
        );
        assert_eq!(shell_word("my run; rm -r ~"), "'my run; rm -r ~'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word(""), "''");
    }
}
