//! flight-local against clients that others wrote; all of it is in `tests/`.
