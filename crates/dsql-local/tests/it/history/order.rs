//! Orders points in time: each within its window, and some before others.
//!
//! Everything here is certain. A contradiction means that no order exists; anything undecided counts as
//! possible.

use super::record::Window;

/// The search stops at this number.
const MANY: usize = 20;

pub(super) type Point = usize;

/// The anomaly, if the order is impossible because of this edge alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// True by definition, and never the cause.
    Given,
    OwnWriteUnseen,
    NonRepeatableRead,
    UnknownRead,
    AbortedRead,
    IntermediateRead,
    /// A read of an uncommitted version.
    DirtyRead,
    /// A read of a version that was replaced before the snapshot.
    StaleRead,
    /// Reads that no single snapshot explains.
    ReadSkew,
    /// Two overlapping transactions have both changed or locked a row, and committed.
    LostUpdate,
    SpuriousConflict,
    FinalState,
    Waited,
    /// Neither success nor OC000 at the commit.
    Unexpected,
}

/// An anomaly and its explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) kind: Kind,
    pub(super) why: String,
}

/// An anomaly, and the edge to remove.
struct Impossible {
    violation: Violation,
    fault: usize,
}

#[derive(Clone, Debug)]
struct Edge {
    before: Point,
    after: Point,
    kind: Kind,
    why: String,
}

/// One of several lists of edges must hold.
struct Choice {
    options: Vec<Vec<(Point, Point)>>,
    kind: Kind,
    why: String,
}

#[derive(Default)]
pub(super) struct Order {
    windows: Vec<Window>,
    edges: Vec<Edge>,
    choices: Vec<Choice>,
    /// The earliest and latest time of each point, and the edge that implies it.
    earliest: Vec<(u64, Option<usize>)>,
    latest: Vec<(u64, Option<usize>)>,
}

impl Order {
    pub(super) fn point(&mut self, window: Window) -> Point {
        self.windows.push(window);
        self.windows.len() - 1
    }

    pub(super) fn fix(&mut self, before: Point, after: Point, kind: Kind, why: String) {
        self.edges.push(Edge { before, after, kind, why });
    }

    pub(super) fn choose(&mut self, options: Vec<Vec<(Point, Point)>>, kind: Kind, why: String) {
        self.choices.push(Choice { options, kind, why });
    }

    /// Finds the anomalies, and the number of undecided choices. The edge of each anomaly is then removed, to
    /// find the next: fewer edges never make an order impossible.
    pub(super) fn solve(mut self) -> (Vec<Violation>, usize) {
        let mut violations = Vec::new();
        loop {
            while let Err(tale) = self.narrow() {
                violations.push(tale.violation);
                if violations.len() == MANY {
                    return (violations, 0);
                }
                self.edges.remove(tale.fault);
            }
            let before = self.edges.len();
            for mut choice in std::mem::take(&mut self.choices) {
                let (earliest, latest) = (&self.earliest, &self.latest);
                if choice.options.iter().any(|all| all.iter().all(|(a, b)| latest[*a].0 <= earliest[*b].0)) {
                    continue;
                }
                choice.options.retain(|all| all.iter().all(|(a, b)| earliest[*a].0 < latest[*b].0));
                match choice.options.as_slice() {
                    [] => violations.push(Violation { kind: choice.kind, why: choice.why }),
                    [only] => {
                        for (before, after) in only {
                            self.edges.push(Edge {
                                before: *before,
                                after: *after,
                                kind: choice.kind,
                                why: choice.why.clone(),
                            });
                        }
                    }
                    _ => self.choices.push(choice),
                }
            }
            if self.edges.len() == before {
                return (violations, self.choices.len());
            }
        }
    }

    /// Narrows the earliest and latest times.
    fn narrow(&mut self) -> Result<(), Impossible> {
        let order = self.sorted()?;
        let mut out = vec![Vec::new(); self.windows.len()];
        for (index, edge) in self.edges.iter().enumerate() {
            out[edge.before].push(index);
        }
        self.earliest = self.windows.iter().map(|window| (window.after, None)).collect();
        self.latest = self.windows.iter().map(|window| (window.before, None)).collect();
        for point in &order {
            for edge in &out[*point] {
                let after = self.edges[*edge].after;
                if self.earliest[*point].0 > self.earliest[after].0 {
                    self.earliest[after] = (self.earliest[*point].0, Some(*edge));
                }
            }
        }
        for point in order.iter().rev() {
            for edge in &out[*point] {
                let after = self.edges[*edge].after;
                if self.latest[after].0 < self.latest[*point].0 {
                    self.latest[*point] = (self.latest[after].0, Some(*edge));
                }
            }
        }
        // Every point in between is impossible too; take the one with the shortest explanation.
        let impossible =
            (0..self.windows.len()).filter(|point| self.earliest[*point].0 >= self.latest[*point].0);
        let tales = impossible.map(|point| self.tale(point));
        let Some(tale) = tales.min_by_key(Vec::len) else { return Ok(()) };
        let ends = tale.first().zip(tale.last()).map(|(first, last)| {
            (self.windows[self.edges[*first].before].after, self.windows[self.edges[*last].after].before)
        });
        let ends = ends.map(|(first, last)| {
            format!("; but the first of these moments came after {first}, and the last before {last}")
        });
        Err(self.impossible(&tale, &ends.unwrap_or_default()))
    }

    /// All points in topological order.
    fn sorted(&self) -> Result<Vec<Point>, Impossible> {
        let mut out = vec![Vec::new(); self.windows.len()];
        let mut waiting = vec![0_usize; self.windows.len()];
        for edge in &self.edges {
            out[edge.before].push(edge.after);
            waiting[edge.after] += 1;
        }
        let mut order: Vec<Point> = (0..waiting.len()).filter(|point| waiting[*point] == 0).collect();
        let mut next = 0;
        while let Some(point) = order.get(next).copied() {
            next += 1;
            for after in &out[point] {
                waiting[*after] -= 1;
                if waiting[*after] == 0 {
                    order.push(*after);
                }
            }
        }
        match waiting.iter().position(|count| *count > 0) {
            None => Ok(order),
            Some(stuck) => {
                let circle = self.circle(stuck, &waiting);
                Err(self.impossible(&circle, "; which is a circle"))
            }
        }
    }

    /// The edges of a cycle, found backwards from a point that waits.
    fn circle(&self, stuck: Point, waiting: &[usize]) -> Vec<usize> {
        let (mut path, mut at) = (Vec::new(), stuck);
        let mut passed = vec![stuck];
        loop {
            let back = |edge: &&Edge| edge.after == at && waiting[edge.before] > 0;
            let Some(index) = self.edges.iter().position(|edge| back(&edge)) else { return path };
            path.insert(0, index);
            at = self.edges[index].before;
            if let Some(start) = passed.iter().position(|point| *point == at) {
                path.truncate(path.len() - start);
                return path;
            }
            passed.push(at);
        }
    }

    /// The edges that make a point impossible, from the latest to the earliest.
    fn tale(&self, point: Point) -> Vec<usize> {
        let (mut tale, mut at) = (Vec::new(), point);
        while let Some(edge) = self.earliest[at].1 {
            tale.insert(0, edge);
            at = self.edges[edge].before;
        }
        at = point;
        while let Some(edge) = self.latest[at].1 {
            tale.push(edge);
            at = self.edges[edge].after;
        }
        tale
    }

    fn impossible(&self, tale: &[usize], end: &str) -> Impossible {
        let told: Vec<usize> =
            tale.iter().copied().filter(|edge| self.edges[*edge].kind != Kind::Given).collect();
        let why: Vec<&str> = told.iter().map(|edge| self.edges[*edge].why.as_str()).collect();
        let violation = Violation { kind: self.kind(&told), why: why.join("; ") + end };
        Impossible { violation, fault: told.first().or(tale.first()).copied().unwrap_or(0) }
    }

    /// An impossible snapshot is explained by what was made of it, if anything.
    fn kind(&self, told: &[usize]) -> Kind {
        let kinds: Vec<Kind> = told.iter().map(|edge| self.edges[*edge].kind).collect();
        let blamed = [Kind::SpuriousConflict, Kind::LostUpdate, Kind::FinalState];
        match (blamed.into_iter().find(|blamed| kinds.contains(blamed)), kinds.as_slice()) {
            (Some(kind), _) => kind,
            (None, [kind]) => *kind,
            _ => Kind::ReadSkew,
        }
    }
}
