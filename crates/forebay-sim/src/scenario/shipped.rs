//! The scenarios that ship with the crate.

/// A shipped scenario.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Shipped {
    /// Its name.
    pub name: &'static str,
    /// The text of its file.
    pub text: &'static str,
}

impl Shipped {
    /// A description: the first line of its file.
    #[must_use]
    pub fn about(&self) -> &'static str {
        self.text.lines().next().unwrap_or("").trim_start_matches(['#', ' '])
    }
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        const SHIPPED: &[Shipped] =
            &[$(Shipped { name: $name, text: include_str!(concat!("../../scenarios/", $name, ".yaml")) }),*];
    };
}

shipped! {
    "local", "ecs-150wps", "ecs-400wps", "ecs-400wps-capped", "mass-drop", "rolling-restart",
    "workload-test", "workload-mass-drop", "workload-rolling-restart", "crowd", "region-10k",
    "herd", "herd-fleet", "herd-rate-only", "small-fleet", "credential-outage", "cluster-failover",
    "coordination-outage", "crash-storm", "clock-skew", "partition", "window",
}

/// All shipped scenarios.
#[must_use]
pub fn shipped() -> &'static [Shipped] {
    SHIPPED
}

/// The shipped scenario with the most similar name, if one is similar.
#[must_use]
pub fn nearest(name: &str) -> Option<&'static str> {
    let distance = |shipped: &Shipped| strsim::damerau_levenshtein(shipped.name, name);
    let nearest = SHIPPED.iter().min_by_key(|shipped| distance(shipped))?;
    (distance(nearest) <= nearest.name.len().div_ceil(3)).then_some(nearest.name)
}
