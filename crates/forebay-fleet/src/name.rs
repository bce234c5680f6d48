//! What an instance is called.

use forebay::{Rng, Seed};

/// The name of an instance: something of the service's, so that operators know it, and something of its own.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    name: String,
    service: String,
    rng: Rng,
}

/// It is in every write of a shard: with names of this length, 27 entries cost one unit.
const LENGTH: usize = 8;
/// Letters of it that are the service's.
const KNOWN: usize = 2;

impl Name {
    /// A name for an instance of `service`. It goes by a number that nobody can guess, and not by a seed: one that was set is the same
    /// in every process.
    pub(crate) fn new(service: &str, entropy: u64) -> Self {
        let letters = service.chars().filter(char::is_ascii_alphanumeric);
        let service = letters.take(KNOWN).collect::<String>().to_lowercase();
        let mut name = Self { name: String::new(), service, rng: Seed::new(entropy).fork("name").rng() };
        name.change();
        name
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.name
    }

    /// Takes another: someone has this one. Returns the one before.
    pub(crate) fn change(&mut self) -> String {
        const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
        let mut name = self.service.clone();
        while name.len() < LENGTH {
            let letter = usize::try_from(self.rng.below(32)).unwrap_or(0);
            name.push(char::from(LETTERS[letter]));
        }
        std::mem::replace(&mut self.name, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_begins_with_the_service_and_is_another() {
        for (service, begin) in [("History-2", "hi"), ("\u{fc}-X", "x"), ("", "")] {
            let mut name = Name::new(service, 1);
            let drawn: BTreeSet<String> = (0..1000).map(|_| name.change()).collect();
            assert_eq!(drawn.len(), 1000, "{service}");
            assert!(drawn.iter().all(|name| name.starts_with(begin) && name.len() == LENGTH), "{drawn:?}");
            assert!(!drawn.contains(Name::new(service, 2).as_str()));
        }
    }
}
