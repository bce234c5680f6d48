//! A local Flight SQL server with real sessions, for tests, demos and laptops.
