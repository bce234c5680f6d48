//! The subcommands `temporal` and `gateway`, and the server that they and others start.

use ::dsql_local::EngineKind;
use clap::{Subcommand, ValueEnum};

#[cfg(any(feature = "gateway", feature = "temporal"))]
use super::Output;
use crate::cluster;
#[cfg(feature = "gateway")]
use crate::gateway;
#[cfg(feature = "temporal")]
use crate::temporal;

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
    /// The gateway beside PgBouncer and a direct connection, with a PostgreSQL and a local Aurora DSQL behind.
    #[cfg(feature = "gateway")]
    Gateway {
        #[command(flatten)]
        load: gateway::Load,
        #[command(flatten)]
        output: Output,
    },
    /// The gateway that is measured. `gateway` starts it.
    #[cfg(feature = "gateway")]
    #[command(hide = true)]
    GatewayServe,
    /// Temporal's stores under the load of a cluster, in both modes, beside fixed connections and a plain pool.
    #[cfg(feature = "temporal")]
    Temporal {
        #[command(flatten)]
        load: temporal::Load,
        #[command(flatten)]
        output: Output,
    },
    /// The local Aurora DSQL that is measured. `dsql`, `dsql-local`, `gateway` and `temporal` start it.
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
            #[cfg(feature = "gateway")]
            Self::Gateway { load, output } => output.print(gateway::run(&load)?),
            #[cfg(feature = "gateway")]
            Self::GatewayServe => gateway::serve()?,
            #[cfg(feature = "temporal")]
            Self::Temporal { load, output } => output.print(temporal::run(&load)?),
            Self::DsqlLocalServe { engine } => cluster::serve(engine.into())?,
        }
        Ok(())
    }
}
