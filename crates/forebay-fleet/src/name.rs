//! The names of instances.

use forebay::{Rng, Seed};

/// The name of an instance: two letters of the service, which operators recognise, and random ones.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    name: String,
    service: String,
    rng: Rng,
}

/// With names of this length, a shard with 27 entries costs one write unit.
const LENGTH: usize = 8;
/// Letters from the service.
const SERVICE_LETTERS: usize = 2;

impl Name {
    /// A name for an instance of `service`. It comes from entropy, not from a configured seed, which may be the same in
    /// every process.
    pub(crate) fn new(service: &str, entropy: u64) -> Self {
        let letters = service.chars().filter(char::is_ascii_alphanumeric);
        let service = letters.take(SERVICE_LETTERS).collect::<String>().to_lowercase();
        let mut name = Self { name: String::new(), service, rng: Seed::new(entropy).fork("name").rng() };
        name.change();
        name
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.name
    }

    /// Changes to another name. Returns the former one.
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
    fn names_begin_with_the_service_and_differ() {
        for (service, begin) in [("History-2", "hi"), ("\u{fc}-X", "x"), ("", "")] {
            let mut name = Name::new(service, 1);
            let drawn: BTreeSet<String> = (0..1000).map(|_| name.change()).collect();
            assert_eq!(drawn.len(), 1000, "{service}");
            assert!(drawn.iter().all(|name| name.starts_with(begin) && name.len() == LENGTH), "{drawn:?}");
            assert!(!drawn.contains(Name::new(service, 2).as_str()));
        }
    }
}
