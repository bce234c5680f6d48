//! A database of one number whose connections do as they are told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use forebay_dsql::{Error, ErrorKind, Session, Sessions};

/// What becomes of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fate {
    Well,
    Fails(ErrorKind),
    Hangs,
}

/// A database of one number, and the fates of the steps to come: BEGIN, the body's statement, COMMIT, ROLLBACK.
#[derive(Clone, Default)]
pub(crate) struct Bank(pub(crate) Arc<Mutex<Books>>);

#[derive(Default)]
pub(crate) struct Books {
    pub(crate) fates: VecDeque<(&'static str, Fate)>,
    pub(crate) log: Vec<String>,
    pub(crate) opened: u32,
    pub(crate) committed: i64,
    /// Connections that were dropped with a transaction open.
    pub(crate) dropped_dirty: u32,
}

pub(crate) struct Link {
    bank: Bank,
    id: u32,
    dirty: bool,
    written: i64,
}

impl Bank {
    pub(crate) fn plan(&self, fates: &[(&'static str, Fate)]) {
        self.0.lock().unwrap().fates = fates.iter().copied().collect();
    }

    pub(crate) fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().log)
    }

    pub(crate) fn committed(&self) -> i64 {
        self.0.lock().unwrap().committed
    }

    async fn step(&self, id: u32, step: &'static str) -> Result<(), Error> {
        let fate = {
            let mut books = self.0.lock().unwrap();
            books.log.push(format!("{step} {id}"));
            match books.fates.front() {
                Some((planned, fate)) if *planned == step => {
                    let fate = *fate;
                    books.fates.pop_front();
                    fate
                }
                _ => Fate::Well,
            }
        };
        match fate {
            Fate::Well => Ok(()),
            Fate::Fails(kind) => Err(Error::new(kind, "as planned")),
            Fate::Hangs => std::future::pending().await,
        }
    }
}

impl Sessions for Bank {
    type Session = Link;

    async fn session(&self) -> Result<Link, Error> {
        let id = {
            let mut books = self.0.lock().unwrap();
            books.opened += 1;
            books.opened
        };
        self.step(id, "take").await?;
        Ok(Link { bank: self.clone(), id, dirty: false, written: 0 })
    }
}

impl Link {
    pub(crate) async fn add(&mut self, amount: i64) -> Result<(), Error> {
        self.bank.step(self.id, "add").await?;
        self.written += amount;
        Ok(())
    }
}

impl Session for Link {
    async fn begin(&mut self) -> Result<(), Error> {
        self.dirty = true;
        self.bank.step(self.id, "begin").await
    }

    async fn commit(&mut self) -> Result<(), Error> {
        let outcome = self.bank.step(self.id, "commit").await;
        if outcome.is_ok() {
            self.bank.0.lock().unwrap().committed += self.written;
        }
        self.written = 0;
        self.dirty = false;
        outcome
    }

    async fn rollback(&mut self) -> Result<(), Error> {
        self.bank.step(self.id, "rollback").await?;
        self.written = 0;
        self.dirty = false;
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.bank.0.lock().unwrap().dropped_dirty += u32::from(self.dirty);
    }
}
