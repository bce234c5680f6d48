//! A Flight SQL client and pools with real sessions, deadlines and cancellation.
