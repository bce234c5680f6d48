//! Tests of dsql-local with third-party clients; all of them are in `tests/`.
