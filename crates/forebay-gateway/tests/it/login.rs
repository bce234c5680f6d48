//! Logins of clients that others wrote: psql with libpq, and tokio-postgres.

mod door;
mod identity;
mod libpq;
mod tokio_postgres;
