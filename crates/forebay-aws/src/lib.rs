//! AWS's part: tokens for Aurora DSQL, signed with the SDK.
