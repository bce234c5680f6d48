//! Handles of statements, prepared statements, transactions and savepoints.

use std::fmt;
use std::str::FromStr;

use arrow_flight::Ticket;
use arrow_flight::sql::{Any, ProstMessageExt, TicketStatementQuery};
use prost::Message;
use tonic::Status;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Statement,
    Prepared,
    Transaction,
    Savepoint,
}

const KINDS: [(Kind, char, &str); 4] = [
    (Kind::Statement, 'q', "statement"),
    (Kind::Prepared, 'p', "prepared statement"),
    (Kind::Transaction, 't', "transaction"),
    (Kind::Savepoint, 's', "savepoint"),
];

/// A handle. It is valid on any connection, within its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) session: String,
    pub(crate) kind: Kind,
    pub(crate) number: u64,
}

impl fmt::Display for Handle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = KINDS.iter().find(|(kind, ..)| *kind == self.kind).map_or('?', |(_, letter, _)| *letter);
        write!(formatter, "{}.{letter}{}", self.session, self.number)
    }
}

impl FromStr for Handle {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (session, rest) = text.rsplit_once('.').ok_or(())?;
        let mut rest = rest.chars();
        let letter = rest.next().ok_or(())?;
        let (kind, ..) = *KINDS.iter().find(|(_, known, _)| *known == letter).ok_or(())?;
        let number = rest.as_str().parse().map_err(|_| ())?;
        Ok(Self { session: session.to_owned(), kind, number })
    }
}

impl Handle {
    /// Parses a handle of this kind.
    pub(crate) fn read(bytes: &[u8], kind: Kind) -> Result<Self, Status> {
        let name = KINDS.iter().find(|(known, ..)| *known == kind).map_or("", |(.., name)| *name);
        str::from_utf8(bytes)
            .ok()
            .and_then(|text| text.parse().ok())
            .filter(|handle: &Self| handle.kind == kind)
            .ok_or_else(|| {
                Status::invalid_argument(format!("this is not a handle of a {name} of this server"))
            })
    }

    pub(crate) fn bytes(&self) -> prost::bytes::Bytes {
        self.to_string().into()
    }

    pub(crate) fn ticket(&self) -> Ticket {
        Ticket::new(self.any().encode_to_vec())
    }

    pub(crate) fn any(&self) -> Any {
        TicketStatementQuery { statement_handle: self.bytes() }.as_any()
    }

    pub(crate) fn of_ticket(ticket: &[u8]) -> Option<Self> {
        let any = Any::decode(ticket).ok()?;
        let ticket = any.unpack::<TicketStatementQuery>().ok()??;
        Self::read(&ticket.statement_handle, Kind::Statement).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_reads_as_it_is_written() {
        let handle = Handle { session: "ab-1".to_owned(), kind: Kind::Statement, number: 7 };
        assert_eq!(handle.to_string(), "ab-1.q7");
        assert_eq!(Handle::read(b"ab-1.q7", Kind::Statement).unwrap(), handle);
        assert_eq!(Handle::of_ticket(&handle.ticket().ticket), Some(handle));
        for wrong in ["", "q7", "ab-1.7", "ab-1.x7", "ab-1.q", "ab-1.p7"] {
            assert!(Handle::read(wrong.as_bytes(), Kind::Statement).is_err(), "{wrong}");
        }
    }
}
