//! The words that decide what a statement does. Each list is sorted.

/// First words of statements that read.
#[rustfmt::skip]
pub(super) const READERS: &[&str] = &[
    "desc", "describe", "explain", "from", "select", "show", "table", "values", "with",
];

/// Words that a statement that only reads does not have, outside strings and quoted names.
#[rustfmt::skip]
pub(super) const WRITERS: &[&str] = &[
    "alter", "analyze", "attach", "begin", "call", "checkpoint", "comment", "commit", "copy", "create",
    "deallocate", "delete", "detach", "discard", "do", "drop", "dumpfile", "exec",
    "execute", "export", "grant", "import", "insert", "install", "into", "kill", "listen", "load", "lock",
    "merge", "notify", "nowait", "optimize", "outfile", "pragma", "prepare", "put", "refresh", "reindex",
    "release", "replace", "reset", "returning", "revoke", "rollback", "savepoint", "set", "share", "start",
    "truncate", "unlock", "update", "upload", "upsert", "use", "vacuum",
];

/// Words that may precede a parenthesis without calling a function.
#[rustfmt::skip]
pub(super) const BEFORE_PARENTHESIS: &[&str] = &[
    "all", "and", "any", "array", "as", "between", "bigint", "binary", "bit", "blob", "by", "case", "char",
    "character", "cross", "cube", "date", "datetime", "dec", "decimal", "distinct", "double", "else",
    "except", "exists", "filter", "float", "from", "full", "group", "having", "in", "inner", "int",
    "integer", "intersect", "interval", "is", "join", "lateral", "left", "like", "limit", "map",
    "materialized", "natural", "not", "numeric", "nvarchar", "offset", "on", "or", "order", "outer", "over",
    "partition", "qualify", "real", "right", "rollup", "row", "select", "sets", "smallint", "some",
    "struct", "text", "then", "time", "timestamp", "timestamptz", "tinyint", "union", "unnest", "using",
    "values", "varbinary", "varchar", "when", "where", "window", "with", "within",
];

/// Functions that change nothing.
#[rustfmt::skip]
pub(super) const PURE: &[&str] = &[
    "abs", "acos", "approx_count_distinct", "arg_max", "arg_min", "array_agg", "array_length", "ascii",
    "asin", "atan", "atan2", "avg", "bit_and", "bit_length", "bit_or", "bit_xor", "bool_and", "bool_or",
    "cast", "ceil", "ceiling", "char_length", "character_length", "chr", "coalesce", "concat", "concat_ws",
    "corr", "cos", "count", "covar_pop", "covar_samp", "cume_dist", "current_date", "current_time",
    "current_timestamp", "date_add", "date_diff", "date_part", "date_sub", "date_trunc", "datediff", "day",
    "decode", "degrees", "dense_rank", "encode", "exp", "extract", "first", "first_value", "floor",
    "format", "generate_series", "greatest", "grouping", "hex", "hour", "if", "ifnull", "iif", "initcap",
    "instr", "isnull", "json_extract", "json_object", "julianday", "lag", "last", "last_value", "lcase",
    "lead", "least", "len", "length", "list", "listagg", "ln", "localtime", "log", "log10", "log2", "lower",
    "lpad", "ltrim", "max", "md5", "median", "min", "minute", "mod", "mode", "month", "now", "nth_value",
    "ntile", "nullif", "nvl", "octet_length", "overlay", "percent_rank", "percentile_cont",
    "percentile_disc", "pi", "position", "pow", "power", "printf", "quantile", "quarter", "quote",
    "radians", "range", "rank", "read_csv", "read_json", "read_parquet", "regexp_matches", "regexp_replace",
    "repeat", "reverse", "round", "row_number", "rpad", "rtrim", "second", "sign", "sin", "split_part",
    "sqrt", "stddev", "stddev_pop", "stddev_samp", "strftime", "string_agg", "strlen", "strpos", "substr",
    "substring", "sum", "tan", "to_char", "to_date", "to_hex", "to_number", "to_timestamp", "total",
    "translate", "trim", "trunc", "try_cast", "typeof", "ucase", "unhex", "unicode", "unixepoch", "upper",
    "var_pop", "var_samp", "variance", "version", "week", "year", "zeroblob",
];

/// First words of statements that leave nothing in their session, except perhaps a transaction.
#[rustfmt::skip]
pub(super) const STATELESS: &[&str] = &[
    "abort", "alter", "analyze", "begin", "checkpoint", "comment", "commit", "copy", "delete", "desc",
    "describe", "drop", "end", "explain", "from", "grant", "insert", "merge", "optimize", "pivot",
    "refresh", "reindex", "release", "replace", "revoke", "rollback", "savepoint", "select", "show",
    "start", "summarize", "table", "truncate", "unpivot", "update", "vacuum", "values", "with",
];

/// First words of statements that return no rows, unless they have RETURNING. Others may: CALL, EXECUTE, PRAGMA.
#[rustfmt::skip]
pub(super) const SILENT: &[&str] = &[
    "abort", "alter", "attach", "begin", "checkpoint", "comment", "commit", "copy", "create", "deallocate",
    "delete", "detach", "drop", "end", "export", "grant", "import", "insert", "install", "load", "merge",
    "release", "replace", "reset", "revoke", "rollback", "savepoint", "set", "start", "truncate", "update",
    "use", "vacuum",
];

/// The verbs that may follow WITH.
pub(super) const VERBS: &[&str] =
    &["delete", "from", "insert", "merge", "select", "table", "update", "values"];

/// Functions that change their session.
#[rustfmt::skip]
pub(super) const SESSION_FUNCTIONS: &[&str] = &[
    "dblink_connect", "dblink_connect_u", "get_lock", "last_insert_id", "load_extension", "release_all_locks",
    "release_lock", "set_config", "setseed",
];

/// Pragmas that only read.
#[rustfmt::skip]
pub(super) const READ_ONLY_PRAGMAS: &[&str] = &[
    "collation_list", "collations", "compile_options", "database_list", "database_size", "foreign_key_check",
    "foreign_key_list", "freelist_count", "function_list", "functions", "index_info", "index_list",
    "index_xinfo", "integrity_check", "module_list", "page_count", "pragma_list", "quick_check", "show",
    "show_databases", "show_tables", "storage_info", "table_info", "table_list", "table_xinfo", "version",
];

/// Words of statements that may do a part of their work before they fail: procedures, blocks, and statements
/// that change their session.
#[rustfmt::skip]
pub(super) const NOT_ATOMIC: &[&str] = &[
    "abort", "add", "alter", "attach", "autocommit", "begin", "cache", "call", "chain", "close", "commit",
    "copy", "create", "cursor", "deallocate", "declare", "define", "detach", "disable", "discard", "do",
    "enable", "end", "exec", "execute", "export", "fetch", "get", "handler", "import", "include", "install",
    "into", "invoke", "listen", "load", "lock", "notify", "open", "perform", "pg_temp", "pragma", "prepare",
    "read", "release", "reset", "resume", "rollback", "run", "savepoint", "script", "session", "set",
    "source", "start", "temp", "temporary", "tran", "transaction", "uncache", "undefine", "unlisten",
    "unlock", "unset", "use", "var", "variable", "xa",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_sorted() {
        let lists = [READERS, WRITERS, BEFORE_PARENTHESIS, PURE, STATELESS];
        for list in lists.into_iter().chain([SESSION_FUNCTIONS, READ_ONLY_PRAGMAS, NOT_ATOMIC, SILENT, VERBS])
        {
            assert!(list.is_sorted(), "{list:?}");
        }
    }
}
