//! Which name was probably meant.

/// The name nearest to `name` of those that are `known`, if it is at most two slips away.
#[must_use]
pub fn closest<'a>(name: &str, known: &'a [String]) -> Option<&'a String> {
    known
        .iter()
        .map(|known| (distance(name, known), known))
        .min()
        .filter(|(slips, _)| *slips <= 2)
        .map(|(_, known)| known)
}

/// How many letters must be put in, left out or changed to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let change = diagonal + usize::from(left != *right);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
