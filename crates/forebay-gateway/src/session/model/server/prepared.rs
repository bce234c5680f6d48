//! Prepared statements: Parse, and Describe.

use super::error::{Outcome, aborted, error, no_portal};
use super::rows::{Column, row_description};
use super::transaction::Transaction;
use super::{ModelServer, World};
use crate::protocol::{ServerError, server, split_string, write};
use crate::session::model::statement::{Op, split};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Prepared {
    pub(super) op: Op,
    pub(super) parameters: Vec<u32>,
    pub(super) column_type: u32,
    /// The client has seen its columns.
    pub(super) described: bool,
    /// It has not, and it may be prepared again on another backend, with other columns.
    pub(super) free: bool,
}

impl Prepared {
    pub(super) fn column(&self, server: &ModelServer) -> Option<Column> {
        Some(match &self.op {
            Op::Rows { column, .. } => (column, 23, 4),
            Op::Divides => ("?column?", 23, 4),
            Op::Table => ("a", self.column_type, 8),
            Op::Parameter => ("?column?", self.parameters.first().copied().unwrap_or(25), 8),
            Op::Show(name) if name == "client_min_messages" => ("client_min_messages", 25, 0xffff),
            Op::Show(name) if server.settings.exists(name) => ("setting", 25, 0xffff),
            Op::SetConfig { .. } => ("set_config", 25, 0xffff),
            Op::ReadSettings => ("name", 25, 0xffff),
            Op::UnlockAll => ("pg_advisory_unlock_all", 2278, 4),
            _ => return None,
        })
    }
}

impl ModelServer {
    pub(super) fn parse(&mut self, body: &[u8], world: &World) -> Outcome {
        let (name, rest) = split_string(body).expect("a name");
        let (text, types) = split_string(rest).expect("a text");
        if name.is_empty() {
            self.statements.remove(name);
        }
        let text = std::str::from_utf8(text).expect("text");
        let texts = split(text);
        if texts.len() > 1 {
            return Err(error("42601", "cannot insert multiple commands into a prepared statement"));
        }
        let op = Op::read(texts.first().map_or("", |text| text));
        if op != Op::Empty {
            self.admit(&op)?;
        }
        if !name.is_empty() && self.statements.contains_key(name) {
            return Err(error(
                "42P05",
                format!("prepared statement \"{}\" already exists", String::from_utf8_lossy(name)),
            ));
        }
        let mut parameters = Vec::new();
        let is_parameter = |value: &str| value == "$1";
        if matches!(&op, Op::Parameter)
            || matches!(&op, Op::Insert(value) | Op::SetConfig { value, .. } if is_parameter(value))
        {
            let given = types.get(2..6).map(|oid| u32::from_be_bytes([oid[0], oid[1], oid[2], oid[3]]));
            parameters.push(given.filter(|&oid| oid != 0).unwrap_or(25));
        }
        let prepared =
            Prepared { op, parameters, column_type: world.column_type, described: false, free: false };
        self.statements.insert(name.to_vec(), prepared);
        write::bare(&mut self.out, server::PARSE_COMPLETE);
        Ok(())
    }

    pub(super) fn prepared(&self, name: &[u8]) -> Result<Prepared, Box<ServerError>> {
        self.statements.get(name).cloned().ok_or_else(|| {
            let message = match name {
                b"" => "unnamed prepared statement does not exist".to_owned(),
                name => format!("prepared statement \"{}\" does not exist", String::from_utf8_lossy(name)),
            };
            error("26000", message)
        })
    }

    /// A statement whose columns nobody has seen takes those of today.
    pub(super) fn adopt(&mut self, name: &[u8], world: &World) {
        if let Some(prepared) = self.statements.get_mut(name).filter(|prepared| prepared.free) {
            prepared.column_type = world.column_type;
        }
    }

    pub(super) fn describe(&mut self, body: &[u8], world: &World) -> Outcome {
        let (name, _) = split_string(&body[1..]).expect("a name");
        let prepared = if body[0] == b'S' {
            self.adopt(name, world);
            let prepared = self.prepared(name)?;
            self.revalidate(&prepared, world)?;
            if let Some(prepared) = self.statements.get_mut(name) {
                (prepared.described, prepared.free) = (true, false);
            }
            write::frame(&mut self.out, server::PARAMETER_DESCRIPTION, |out| {
                out.extend_from_slice(&u16::try_from(prepared.parameters.len()).expect("few").to_be_bytes());
                out.extend(prepared.parameters.iter().flat_map(|oid| oid.to_be_bytes()));
            });
            prepared
        } else {
            let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?.prepared.clone();
            if self.transaction == Transaction::Failed && !self.is_exit(&portal.op) {
                return Err(aborted());
            }
            portal
        };
        match prepared.column(self) {
            Some(column) => row_description(&mut self.out, &column),
            None => write::bare(&mut self.out, server::NO_DATA),
        }
        Ok(())
    }

    /// Whether there are statements whose columns may change.
    pub(in crate::session::model) fn has_free_statements(&self) -> bool {
        self.statements.values().any(|prepared| prepared.free)
    }

    /// Takes away the unnamed statement, or puts back the one that there was. Whether there is such a thing.
    pub(in crate::session::model) fn exchange_unnamed(&mut self, before: &Self) -> bool {
        let unnamed = &b""[..];
        match (self.statements.remove(unnamed), before.statements.get(unnamed)) {
            (Some(_), _) => true,
            (None, Some(prepared)) => {
                self.statements.insert(unnamed.to_vec(), prepared.clone());
                true
            }
            (None, None) => false,
        }
    }
}
