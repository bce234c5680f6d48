//! A list threaded through numbered nodes: joining and leaving cost the same anywhere in it, and allocate nothing.

/// No node.
const NIL: u32 = u32::MAX;

/// A node's neighbours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    before: u32,
    after: u32,
}

impl Default for Links {
    fn default() -> Self {
        Self { before: NIL, after: NIL }
    }
}

/// Storage whose nodes carry [`Links`].
pub(super) trait Nodes {
    fn links(&mut self, node: u32) -> &mut Links;
}

/// The ends of a list. A node is in at most one.
#[derive(Debug)]
pub(super) struct Chain {
    front: u32,
    back: u32,
    len: u32,
}

impl Default for Chain {
    fn default() -> Self {
        Self { front: NIL, back: NIL, len: 0 }
    }
}

impl Chain {
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    pub(super) fn is_empty(&self) -> bool {
        self.front == NIL
    }

    pub(super) fn front(&self) -> Option<u32> {
        (self.front != NIL).then_some(self.front)
    }

    pub(super) fn after(&self, nodes: &mut impl Nodes, node: u32) -> Option<u32> {
        let after = nodes.links(node).after;
        (after != NIL).then_some(after)
    }

    #[inline]
    pub(super) fn push_front(&mut self, nodes: &mut impl Nodes, node: u32) {
        *nodes.links(node) = Links { before: NIL, after: self.front };
        match self.front {
            NIL => self.back = node,
            front => nodes.links(front).before = node,
        }
        self.front = node;
        self.len += 1;
    }

    pub(super) fn push_back(&mut self, nodes: &mut impl Nodes, node: u32) {
        *nodes.links(node) = Links { before: self.back, after: NIL };
        match self.back {
            NIL => self.front = node,
            back => nodes.links(back).after = node,
        }
        self.back = node;
        self.len += 1;
    }

    #[inline]
    pub(super) fn pop_front(&mut self, nodes: &mut impl Nodes) -> Option<u32> {
        let node = self.front()?;
        self.front = nodes.links(node).after;
        match self.front {
            NIL => self.back = NIL,
            front => nodes.links(front).before = NIL,
        }
        self.len -= 1;
        Some(node)
    }

    /// Takes `node`, which must be in this list, out of it.
    pub(super) fn remove(&mut self, nodes: &mut impl Nodes, node: u32) {
        let Links { before, after } = *nodes.links(node);
        match before {
            NIL => self.front = after,
            before => nodes.links(before).after = after,
        }
        match after {
            NIL => self.back = before,
            after => nodes.links(after).before = before,
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    struct Plain(Vec<Links>);

    impl Nodes for Plain {
        fn links(&mut self, node: u32) -> &mut Links {
            &mut self.0[node as usize]
        }
    }

    proptest! {
        #[test]
        fn behaves_like_a_deque(steps in prop::collection::vec((0u8..4, 0u32..8), 0..200)) {
            let mut nodes = Plain(vec![Links::default(); 8]);
            let mut chain = Chain::default();
            let mut model: VecDeque<u32> = VecDeque::new();
            for (step, node) in steps {
                match step {
                    0 if !model.contains(&node) => {
                        chain.push_front(&mut nodes, node);
                        model.push_front(node);
                    }
                    1 if !model.contains(&node) => {
                        chain.push_back(&mut nodes, node);
                        model.push_back(node);
                    }
                    2 => prop_assert_eq!(chain.pop_front(&mut nodes), model.pop_front()),
                    3 => if let Some(at) = model.iter().position(|n| *n == node) {
                        chain.remove(&mut nodes, node);
                        model.remove(at);
                    },
                    _ => {}
                }
                prop_assert_eq!(chain.len(), model.len());
                prop_assert_eq!(chain.is_empty(), model.is_empty());
                let mut walked = Vec::new();
                let mut next = chain.front();
                while let Some(node) = next {
                    walked.push(node);
                    next = chain.after(&mut nodes, node);
                }
                prop_assert_eq!(walked, Vec::from(model.clone()));
            }
        }
    }
}
