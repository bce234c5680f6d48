//! The line of callers without a connection: strictly first come, first served.

use super::chain::{Chain, Links, Nodes};
use crate::sabotage::{self, Sabotage};
use crate::time::Instant;

/// A caller's place, until it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

/// Callers who wait. `E` is what they wait for, `W` wakes them.
#[derive(Debug)]
pub(super) struct Waiters<E, W> {
    seats: Seats<E, W>,
    vacant: Vec<u32>,
    line: Chain,
    /// A waker that is no longer needed. Dropping it may run anything, and so is left to the shell.
    spent: Option<W>,
}

#[derive(Debug)]
struct Seats<E, W>(Vec<Seat<E, W>>);

#[derive(Debug)]
struct Seat<E, W> {
    links: Links,
    since: Instant,
    /// A limit of its own; it also has a timer of its own then.
    deadline: Option<Instant>,
    turn: Turn<E, W>,
}

/// What has become of a caller.
#[derive(Debug)]
pub(super) enum Turn<E, W> {
    /// In line.
    Waiting(W),
    /// Out of the line, with a connection to pick up.
    Served(E),
    /// Out of the line, with nothing to come.
    Closed,
    /// Gone.
    Vacant,
}

impl<E, W> Nodes for Seats<E, W> {
    fn links(&mut self, node: u32) -> &mut Links {
        &mut self.0[node as usize].links
    }
}

impl<E, W> Default for Waiters<E, W> {
    fn default() -> Self {
        Self { seats: Seats(Vec::new()), vacant: Vec::new(), line: Chain::default(), spent: None }
    }
}

impl<E, W> Waiters<E, W> {
    /// How many are in line.
    pub(super) fn len(&self) -> usize {
        self.line.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Joins the end of the line.
    pub(super) fn join(&mut self, since: Instant, deadline: Option<Instant>, waker: W) -> Ticket {
        let seat = Seat { links: Links::default(), since, deadline, turn: Turn::Waiting(waker) };
        let index = match self.vacant.pop() {
            Some(index) => {
                self.seats.0[index as usize] = seat;
                index
            }
            None => {
                self.seats.0.push(seat);
                u32::try_from(self.seats.0.len() - 1).expect("fewer than four billion callers wait")
            }
        };
        if sabotage::is_on(Sabotage::FirstComeFirstServed) {
            self.line.push_front(&mut self.seats, index);
        } else {
            self.line.push_back(&mut self.seats, index);
        }
        Ticket(index)
    }

    /// Since when this caller waits, and its own limit.
    pub(super) fn patience(&self, ticket: Ticket) -> (Instant, Option<Instant>) {
        let seat = &self.seats.0[ticket.0 as usize];
        (seat.since, seat.deadline)
    }

    /// Gives `entry` to the first in line and tells how to wake it; hands `entry` back if nobody waits.
    pub(super) fn serve(&mut self, entry: E) -> Result<W, E> {
        let Some(index) = self.line.pop_front(&mut self.seats) else { return Err(entry) };
        match std::mem::replace(&mut self.seats.0[index as usize].turn, Turn::Served(entry)) {
            Turn::Waiting(waker) => Ok(waker),
            _ => unreachable!("whoever is in line is waiting"),
        }
    }

    /// Takes what this caller has been given so far. A caller in line stays there, with `waker` from now on.
    pub(super) fn look(&mut self, ticket: Ticket, waker: &W) -> Turn<E, ()>
    where
        W: Clone,
    {
        match &mut self.seats.0[ticket.0 as usize].turn {
            Turn::Waiting(present) => {
                self.spent = Some(std::mem::replace(present, waker.clone()));
                Turn::Waiting(())
            }
            turn => match std::mem::replace(turn, Turn::Vacant) {
                Turn::Served(entry) => Turn::Served(entry),
                Turn::Closed => Turn::Closed,
                Turn::Waiting(_) | Turn::Vacant => unreachable!("a caller has one turn"),
            },
        }
    }

    /// Puts a caller whose connection turned out to be stale back at the head of the line.
    pub(super) fn rejoin(&mut self, ticket: Ticket, waker: W) {
        self.seats.0[ticket.0 as usize].turn = Turn::Waiting(waker);
        self.line.push_front(&mut self.seats, ticket.0);
    }

    /// Gives a caller that is out of the line another connection to pick up.
    pub(super) fn serve_again(&mut self, ticket: Ticket, entry: E) {
        self.seats.0[ticket.0 as usize].turn = Turn::Served(entry);
    }

    /// Leaves for good, with whatever there was to pick up.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<E> {
        self.vacant.push(ticket.0);
        match std::mem::replace(&mut self.seats.0[ticket.0 as usize].turn, Turn::Vacant) {
            Turn::Waiting(waker) => {
                // If one was replaced in this visit, that is the one to hand out: this is a copy of what the caller holds.
                self.spent.get_or_insert(waker);
                self.line.remove(&mut self.seats, ticket.0);
                None
            }
            Turn::Served(entry) => Some(entry),
            Turn::Closed | Turn::Vacant => None,
        }
    }

    /// Sends the first in line away, and tells how to wake it.
    pub(super) fn dismiss(&mut self) -> Option<W> {
        let index = self.line.pop_front(&mut self.seats)?;
        match std::mem::replace(&mut self.seats.0[index as usize].turn, Turn::Closed) {
            Turn::Waiting(waker) => Some(waker),
            _ => unreachable!("whoever is in line is waiting"),
        }
    }

    /// Takes the waker that is no longer needed. A visit leaves at most one that may be the last of its kind.
    pub(super) fn take_spent(&mut self) -> Option<W> {
        self.spent.take()
    }

    /// Walks the line from its head, past callers with a limit of their own, for as long as `impatient` says so of the
    /// time since when one waits, and collects their wakers. Returns since when the first patient one waits.
    pub(super) fn impatient(
        &mut self,
        impatient: impl Fn(Instant) -> bool,
        wakers: &mut Vec<W>,
    ) -> Option<Instant>
    where
        W: Clone,
    {
        let mut next = self.line.front();
        while let Some(index) = next {
            let seat = &self.seats.0[index as usize];
            if let (None, Turn::Waiting(waker)) = (seat.deadline, &seat.turn) {
                if !impatient(seat.since) {
                    return Some(seat.since);
                }
                wakers.push(waker.clone());
            }
            next = self.line.after(&mut self.seats, index);
        }
        None
    }
}
