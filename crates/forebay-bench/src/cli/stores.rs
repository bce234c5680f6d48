//! The subcommand `temporal`, and the server that it and others start.

use ::dsql_local::EngineKind;
use clap::{Subcommand, ValueEnum};

use super::Output;
use crate::{cluster, temporal};

/// An engine of the local Aurora DSQL.
#[derive(Clone, Copy, Default, ValueEnum)]
pub(super) enum Engine {
    /// SQLite, inside the server's process.
    #[default]
    Builtin,
    /// A private PostgreSQL.
    Postgres,
}

impl From<Engine> for EngineKind {
    fn from(engine: Engine) -> Self {
        match engine {
            Engine::Builtin => Self::Builtin,
            Engine::Postgres => Self::Postgres,
        }
    }
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Temporal's stores under the load of a cluster, in both modes, beside fixed connections and a plain pool.
    Temporal {
        #[command(flatten)]
        load: temporal::Load,
        #[command(flatten)]
        output: Output,
    },
    /// The local Aurora DSQL that is measured. `dsql`, `dsql-local` and `temporal` start it.
    #[command(hide = true)]
    DsqlLocalServe {
        /// The engine.
        #[arg(long, value_enum, default_value_t)]
        engine: Engine,
    },
}

impl Command {
    /// # Errors
    /// If it cannot be measured.
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Temporal { load, output } => output.print(temporal::run(&load)?),
            Self::DsqlLocalServe { engine } => cluster::serve(engine.into())?,
        }
        Ok(())
    }
}
