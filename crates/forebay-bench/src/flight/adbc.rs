//! A pool over ADBC and its Flight SQL driver, which is a library in Go behind a C interface.

use std::env;
use std::path::PathBuf;

use adbc_core::options::{AdbcVersion, OptionDatabase};
use adbc_core::{Connection, Database, Driver, Statement};
use adbc_driver_manager::{ManagedConnection, ManagedDatabase, ManagedDriver};
use anyhow::{Context, ensure};

use super::callers::BlockingQuery;
use super::server::Server;

const LIBRARY: &str = "libadbc_driver_flightsql.so";
/// The path of the library, if it is not where the script puts it.
const VARIABLE: &str = "ADBC_FLIGHTSQL_DRIVER";

/// A pool of ADBC connections: r2d2, since its calls block.
#[derive(Clone)]
pub(crate) struct Adbc(r2d2::Pool<Opener>);

impl Adbc {
    /// A pool with this many open connections.
    pub(crate) fn connect(server: &Server, connections: usize) -> anyhow::Result<Self> {
        let library = library()?;
        let mut driver = ManagedDriver::load_dynamic_from_filename(&library, None, AdbcVersion::V110)
            .with_context(|| format!("loading {}", library.display()))?;
        let uri = format!("grpc+tcp://{}", server.address);
        let database = driver.new_database_with_opts([(OptionDatabase::Uri, uri.into())])?;
        let connections = u32::try_from(connections)?;
        let pool = r2d2::Pool::builder()
            .max_size(connections)
            .min_idle(Some(connections))
            .test_on_check_out(false)
            .max_lifetime(None)
            .idle_timeout(None)
            .build(Opener(database))?;
        Ok(Self(pool))
    }
}

impl BlockingQuery for Adbc {
    fn query(&mut self, sql: &'static str) -> anyhow::Result<usize> {
        let mut connection = self.0.get()?;
        let mut statement = connection.new_statement()?;
        statement.set_sql_query(sql)?;
        let mut rows = 0;
        for batch in statement.execute()? {
            rows += batch?.num_rows();
        }
        Ok(rows)
    }
}

/// The path of the driver.
fn library() -> anyhow::Result<PathBuf> {
    let library = match env::var_os(VARIABLE) {
        Some(library) => PathBuf::from(library),
        None => {
            // This program is in `target/release` or similar.
            let program = env::current_exe()?;
            let target =
                program.ancestors().nth(2).context("this program is outside of a target directory")?;
            target.join("adbc").join(LIBRARY)
        }
    };
    ensure!(
        library.exists(),
        "{} does not exist: crates/forebay-bench/adbc gets it, or {VARIABLE} gives its path",
        library.display()
    );
    Ok(library)
}

/// Opens connections.
struct Opener(ManagedDatabase);

impl r2d2::ManageConnection for Opener {
    type Connection = ManagedConnection;
    type Error = adbc_core::error::Error;

    fn connect(&self) -> Result<ManagedConnection, Self::Error> {
        self.0.new_connection()
    }

    fn is_valid(&self, _connection: &mut ManagedConnection) -> Result<(), Self::Error> {
        Ok(())
    }

    fn has_broken(&self, _connection: &mut ManagedConnection) -> bool {
        false
    }
}
