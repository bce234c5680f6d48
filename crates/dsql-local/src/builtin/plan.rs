//! Translates a statement from PostgreSQL's dialect to SQLite's, with its types.

use sqlparser::ast::{Function, ObjectType, Statement as Ast};

use super::infer::{Catalog, Item, Scope, core, folded};
use super::rewrite;
use super::syntax;
use super::types::Type;
use crate::error::SqlError;

#[derive(Debug)]
pub(super) struct Plan {
    /// Empty if there is nothing to run.
    pub(super) sql: String,
    pub(super) parameters: Vec<Type>,
    /// The columns that can be told from the text; SQLite supplies the rest.
    pub(super) items: Option<Vec<Item>>,
    pub(super) writes: bool,
    /// Whether it changes the schema, which invalidates other plans.
    pub(super) ddl: bool,
    /// Whether it returns a job id, as index builds do.
    pub(super) job: bool,
}

impl Plan {
    /// Parses and translates a statement.
    pub(super) fn make(sql: &str, given: &[Option<Type>], catalog: Catalog<'_>) -> Result<Self, SqlError> {
        let mut ast = syntax::parse(sql)?;
        let scope = Scope::of(&ast, catalog, given);
        let (items, writes, ddl) = shape(&ast, &scope)?;
        if items.as_ref().is_some_and(|items| items.len() > syntax::COLUMNS) {
            return Err(syntax::too_many_columns());
        }
        let count = scope.parameters.keys().next_back().copied().unwrap_or(0);
        // The protocol counts parameters in 16 bits.
        if count > usize::from(u16::MAX) {
            return Err(SqlError::new("42P02", format!("there is no parameter ${count}")));
        }
        let parameter =
            |number: usize| scope.parameters.get(&number).copied().flatten().unwrap_or(Type::Text);
        let parameters = (1..=count).map(parameter).collect();
        let job = matches!(&ast, Ast::CreateIndex(index) if index.r#async);
        let items = if job { Some(vec![Some(("job_id".to_owned(), Some(Type::Text)))]) } else { items };
        let locks = rewrite::to_sqlite(&mut ast)?;
        let sql = if ignored(&ast) { String::new() } else { ast.to_string() };
        Ok(Self { sql, parameters, items, writes: writes || locks, ddl, job })
    }
}

/// The columns of a statement, whether it writes, and whether it changes the schema.
fn shape(ast: &Ast, scope: &Scope<'_>) -> Result<(Option<Vec<Item>>, bool, bool), SqlError> {
    let returning = |items: &Option<Vec<_>>| items.as_ref().map(|items| scope.projection(items));
    Ok(match core(ast) {
        Ast::Query(query) => (Some(scope.items(query)), false, false),
        Ast::Insert(insert) => (returning(&insert.returning), true, false),
        Ast::Update(update) if !update.table.joins.is_empty() => {
            return Err(unsupported("UPDATE of a join"));
        }
        Ast::Update(update) => (returning(&update.returning), true, false),
        Ast::Delete(delete) => (returning(&delete.returning), true, false),
        Ast::CreateTable(table) if table.query.is_some() => {
            return Err(SqlError::unsupported("unsupported statement: CreateTableAs"));
        }
        Ast::CreateTable(_)
        | Ast::CreateIndex(_)
        | Ast::CreateView(_)
        | Ast::AlterTable(_)
        | Ast::Drop { .. }
        | Ast::CreateSchema { .. }
        | Ast::CreateRole(_)
        | Ast::AlterRole { .. }
        | Ast::Grant(_)
        | Ast::Revoke(_)
        | Ast::Comment { .. } => (None, true, true),
        Ast::Deallocate { .. } => (None, false, false),
        Ast::Call(function) if waits_for_job(function) => (None, false, false),
        other => {
            let text = other.to_string();
            let words: Vec<&str> = text.split_whitespace().take(2).collect();
            return Err(unsupported(&words.join(" ")));
        }
    })
}

pub(super) fn unsupported(what: &str) -> SqlError {
    SqlError::unsupported(format!("the builtin engine does not run: {what}"))
        .hint("it runs simple SQL on SQLite; see docs/dsql-local.md, or use the engine postgres")
}

/// Whether SQLite has nothing to do: it has one schema, no roles and no grants.
fn ignored(ast: &Ast) -> bool {
    match ast {
        Ast::CreateSchema { .. }
        | Ast::CreateRole(_)
        | Ast::AlterRole { .. }
        | Ast::Grant(_)
        | Ast::Revoke(_)
        | Ast::Comment { .. }
        | Ast::Deallocate { .. }
        | Ast::Call(_) => true,
        Ast::Drop { object_type, .. } => matches!(object_type, ObjectType::Schema | ObjectType::Role),
        _ => false,
    }
}

/// Index builds are done when they return, so there is no job to wait for.
fn waits_for_job(function: &Function) -> bool {
    folded(&function.name) == "wait_for_job"
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan(sql: &str) -> Result<Plan, SqlError> {
        let catalog = |table: &str| match table {
            "t" => vec![
                ("id".to_owned(), Type::Uuid),
                ("n".to_owned(), Type::Int8),
                ("at".to_owned(), Type::Timestamptz),
            ],
            _ => vec![],
        };
        Plan::make(sql, &[], &catalog)
    }

    fn columns(sql: &str) -> Vec<(String, Option<Type>)> {
        plan(sql).unwrap().items.unwrap_or_default().into_iter().flatten().collect()
    }

    #[test]
    fn columns_have_postgresqls_names_and_types() {
        let one = |sql: &str| columns(sql).remove(0);
        assert_eq!(one("SELECT 1"), ("?column?".into(), Some(Type::Int4)));
        assert_eq!(one("SELECT 5000000000"), ("?column?".into(), Some(Type::Int8)));
        assert_eq!(one("SELECT 1::bigint"), ("int8".into(), Some(Type::Int8)));
        assert_eq!(one("SELECT 'a' AS b"), ("b".into(), Some(Type::Text)));
        assert_eq!(one("SELECT count(*) FROM t"), ("count".into(), Some(Type::Int8)));
        assert_eq!(one("SELECT n + 1 FROM t"), ("?column?".into(), Some(Type::Int8)));
        assert_eq!(one("SELECT n > 1 AS many FROM t AS x"), ("many".into(), Some(Type::Bool)));
        assert_eq!(one("SELECT now()"), ("now".into(), Some(Type::Timestamptz)));
        assert_eq!(one("SELECT sum(n) FROM t"), ("sum".into(), Some(Type::Numeric)));
        assert_eq!(one("SELECT x.m FROM (SELECT max(n) AS m FROM t) x"), ("m".into(), Some(Type::Int8)));
        assert_eq!(
            one("WITH x AS (SELECT count(*) AS c FROM t) SELECT c FROM x"),
            ("c".into(), Some(Type::Int8))
        );
        assert_eq!(one("INSERT INTO t (n) VALUES (1) RETURNING id"), ("id".into(), Some(Type::Uuid)));
        assert_eq!(plan("SELECT *, 1 FROM t").unwrap().items.unwrap().len(), 2);
    }

    #[test]
    fn parameters_take_their_types_from_the_context() {
        let types = |sql: &str| plan(sql).unwrap().parameters;
        assert_eq!(types("SELECT $1::int, $2"), [Type::Int4, Type::Text]);
        assert_eq!(
            types("SELECT * FROM t WHERE id = $1 AND $2 < n LIMIT $3"),
            [Type::Uuid, Type::Int8, Type::Int8]
        );
        assert_eq!(
            types("INSERT INTO t (n, id) VALUES ($1, $2), ($3, $4)"),
            [Type::Int8, Type::Uuid, Type::Int8, Type::Uuid]
        );
        assert_eq!(types("UPDATE t SET at = $2 WHERE n IN ($1)"), [Type::Int8, Type::Timestamptz]);
        assert_eq!(
            types("INSERT INTO t VALUES ($1, 1) ON CONFLICT (id) DO UPDATE SET n = $2"),
            [Type::Uuid, Type::Int8]
        );
        assert_eq!(types("SELECT $2::bool"), [Type::Text, Type::Bool]);
    }

    #[test]
    fn the_dialect_becomes_sqlites() {
        let sql = |sql: &str| plan(sql).unwrap().sql;
        assert_eq!(sql("SELECT $1::int FROM public.t"), "SELECT CAST(pg_int4(?1) AS INTEGER) FROM t");
        assert_eq!(sql("SELECT E'it\\'s', $$a$$, true::bool"), "SELECT 'it''s', 'a', pg_bool(true)");
        assert_eq!(
            sql("SELECT n FROM t WHERE 'A' ILIKE 'a'"),
            "SELECT n FROM t WHERE lower('A') LIKE lower('a')"
        );
        assert_eq!(sql("SELECT current_user, current_timestamp"), "SELECT current_user(), now()");
        assert_eq!(
            sql("SELECT g FROM generate_series(1, 3) AS g"),
            "SELECT g FROM (SELECT value AS \"g\" FROM generate_series(1, 3)) AS \"g\""
        );
        assert_eq!(
            sql(
                "CREATE TABLE public.x (id uuid DEFAULT gen_random_uuid() PRIMARY KEY, n varchar(10) NOT NULL)"
            ),
            "CREATE TABLE x (id uuid DEFAULT (gen_random_uuid()) PRIMARY KEY, n varchar NOT NULL \
             CONSTRAINT \"22001: value too long for type character varying(10)\" CHECK (length(\"n\") <= 10))"
        );
        assert_eq!(sql("GRANT SELECT ON t TO app"), "");
    }

    #[test]
    fn writes_after_with_are_writes() {
        let planned = plan("WITH a AS (SELECT 1) INSERT INTO t (n) VALUES ($1)").unwrap();
        assert!(planned.writes && planned.items.is_none());
        assert_eq!(planned.parameters, [Type::Int8]);
        let planned = plan("WITH a AS (SELECT 1) DELETE FROM t WHERE id = $1 RETURNING n").unwrap();
        assert_eq!((planned.writes, planned.parameters), (true, vec![Type::Uuid]));
        assert_eq!(planned.items, Some(vec![Some(("n".to_owned(), Some(Type::Int8)))]));
        assert!(plan("WITH a AS (SELECT 1) UPDATE t JOIN x ON true SET n = 1").is_err());
    }

    #[test]
    fn locks_make_a_read_a_write_and_indexes_are_jobs() {
        let locked = plan("SELECT n FROM t FOR UPDATE").unwrap();
        assert_eq!((locked.sql.as_str(), locked.writes), ("SELECT n FROM t", true));
        assert!(!plan("SELECT n FROM t").unwrap().writes);
        let index = plan("CREATE INDEX ASYNC ON t (n)").unwrap();
        assert_eq!((index.sql.as_str(), index.job, index.ddl), ("CREATE INDEX t_n_idx ON t(n)", true, true));
    }

    #[test]
    fn what_it_cannot_run_it_says() {
        let refusal = |sql: &str| plan(sql).unwrap_err().to_string();
        assert_eq!(refusal("CREATE TABLE x (id serial)"), "42704: type \"serial\" does not exist");
        assert_eq!(refusal("CREATE TABLE x AS SELECT 1"), "0A000: unsupported statement: CreateTableAs");
        assert!(refusal("CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'").starts_with("0A000"));
        assert_eq!(refusal("SELECT $99999999999"), "42P02: there is no parameter $99999999999");
        assert!(refusal("SELEC 1").starts_with("42601: syntax error"));
        for deep in [
            format!("SELECT {}1", "(".repeat(10_000)),
            format!("SELECT 1{}", " + 1".repeat(1_000_000)),
            format!("SELECT (1){}", " + (1)".repeat(100_000)),
            format!("SELECT 1{}", "::int".repeat(100_000)),
            format!("SELECT 1{}", " UNION SELECT 1".repeat(100_000)),
            format!("SELECT a{}", "[1]".repeat(100_000)),
            format!("SELECT {}1", "NOT ".repeat(100_000)),
        ] {
            assert!(refusal(&deep).starts_with("54001"), "{}", &deep[..20]);
        }
        // The longest chain that is allowed can be walked.
        assert!(plan(&format!("SELECT 1{}", " + 1".repeat(990))).is_ok());
        assert!(plan(&format!("SELECT 1 WHERE 1 IN (1{})", ", 1".repeat(100_000))).is_ok());
        assert!(plan(&format!("SELECT 1{}", ", 1".repeat(1_663))).is_ok());
        assert!(plan(&format!("SELECT 1 FROM t ORDER BY 1{}", ", 1".repeat(2_000))).is_ok());
        for wide in ["SELECT 1", "SELECT 1 IS DISTINCT FROM 2", "DELETE FROM t RETURNING 1"] {
            assert!(refusal(&format!("{wide}{}", ", 1".repeat(1_664))).starts_with("54011"), "{wide}");
        }
    }

    proptest! {
        /// Any sequence of words gives a plan or an error, never a panic.
        #[test]
        fn nothing_panics(words in proptest::collection::vec(proptest::sample::select(WORDS), 1..14)) {
            drop(plan(&words.join(" ")));
        }
    }

    const WORDS: &[&str] = &[
        "SELECT",
        "INSERT INTO",
        "UPDATE",
        "DELETE FROM",
        "CREATE TABLE",
        "ALTER TABLE",
        "DROP",
        "t",
        "x",
        "(",
        ")",
        ",",
        "*",
        "FROM",
        "WHERE",
        "SET",
        "VALUES",
        "RETURNING",
        "$1",
        "$2",
        "$0",
        "$99999999999",
        "'a'",
        "E'\\\\'",
        "$$b$$",
        "1",
        "1.5",
        "::int",
        "::interval",
        "::uuid[]",
        "CAST",
        "AS",
        "=",
        "<",
        "||",
        "AND",
        "NOT",
        "IN",
        "BETWEEN",
        "LIKE",
        "ILIKE",
        "CASE",
        "WHEN",
        "THEN",
        "END",
        "NULL",
        "count",
        "generate_series(1, 2)",
        "ORDER BY",
        "LIMIT",
        "FOR UPDATE",
        "UNION",
        "WITH",
        "ON CONFLICT",
        "DO UPDATE",
        "é",
        "\"q\"",
        "now()",
        "current_user",
        "extract(year from now())",
        "interval '1 day'",
        ".",
        "[",
    ];
}
