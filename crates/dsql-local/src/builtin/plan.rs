//! From a statement in PostgreSQL's dialect to one in SQLite's, with its types.

use std::ops::ControlFlow;

use sqlparser::ast::{
    AlterTableOperation, BinaryOperator, CastKind, ColumnDef, ColumnOption, DataType, Expr, Function,
    FunctionArgumentList, FunctionArguments, Ident, ObjectName, ObjectNamePart, ObjectType, Query,
    Statement as Ast, TableAlias, TableFactor, Value, VisitMut, VisitorMut,
};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, Tokenizer};

use super::infer::{Catalog, Item, Scope, folded, is_plain};
use super::types::Type;
use crate::error::SqlError;

/// How deep expressions may be nested: more would be an attack on the stack.
const DEPTH: usize = 50;

/// How many tokens a chain such as 1 + 1 + 1 may have: it makes a tree as deep, which is walked by recursion.
const CHAIN: usize = 2_000;

/// A statement, ready for SQLite.
#[derive(Debug)]
pub(super) struct Plan {
    /// Nothing, if there is nothing to run.
    pub(super) sql: String,
    pub(super) parameters: Vec<Type>,
    /// The columns as far as the text tells; what it does not tell, SQLite knows.
    pub(super) items: Option<Vec<Item>>,
    pub(super) writes: bool,
    /// Whether it changes the schema, so that other plans are void.
    pub(super) ddl: bool,
    /// Whether it answers with the number of a job, as index builds do.
    pub(super) job: bool,
}

impl Plan {
    /// Reads and translates a statement.
    ///
    /// # Errors
    /// If it is no SQL, or none that this engine can run.
    pub(super) fn make(sql: &str, given: &[Option<Type>], catalog: Catalog<'_>) -> Result<Self, SqlError> {
        let mut ast = parse(sql)?;
        let scope = Scope::of(&ast, catalog, given);
        let (items, writes, ddl) = shape(&ast, &scope)?;
        let count = scope.parameters.keys().next_back().copied().unwrap_or(0);
        let parameter =
            |number: usize| scope.parameters.get(&number).copied().flatten().unwrap_or(Type::Text);
        let parameters = (1..=count).map(parameter).collect();
        let job = matches!(&ast, Ast::CreateIndex(index) if index.r#async);
        let items = if job { Some(vec![Some(("job_id".to_owned(), Some(Type::Text)))]) } else { items };
        let mut rewrite = Rewrite { locks: false, problem: None };
        definition(&mut ast)?;
        let (ControlFlow::Continue(()) | ControlFlow::Break(())) = VisitMut::visit(&mut ast, &mut rewrite);
        if let Some(problem) = rewrite.problem {
            return Err(problem);
        }
        let sql = if ignored(&ast) { String::new() } else { ast.to_string() };
        Ok(Self { sql, parameters, items, writes: writes || rewrite.locks, ddl, job })
    }
}

fn parse(sql: &str) -> Result<Ast, SqlError> {
    let dialect = PostgreSqlDialect {};
    let tokens = Tokenizer::new(&dialect, sql).tokenize_with_location();
    let statement = tokens.map_err(ParserError::from).and_then(|tokens| {
        if longest_chain(tokens.iter().map(|token| &token.token)) > CHAIN {
            return Err(ParserError::RecursionLimitExceeded);
        }
        let mut parser = Parser::new(&dialect).with_recursion_limit(DEPTH).with_tokens_with_locations(tokens);
        let statement = parser.parse_statement()?;
        parser.expect_token(&Token::EOF)?;
        Ok(statement)
    });
    statement.map_err(|error| match error {
        ParserError::RecursionLimitExceeded => SqlError::new("54001", "the statement is nested too deeply"),
        ParserError::ParserError(text) | ParserError::TokenizerError(text) => {
            SqlError::new("42601", format!("syntax error: {text}"))
        }
    })
}

/// The most tokens between two commas on one level of parentheses: no tree that they make is deeper.
fn longest_chain<'a>(tokens: impl Iterator<Item = &'a Token>) -> usize {
    let (mut levels, mut longest) = (vec![0_usize], 0);
    for token in tokens {
        match token {
            Token::LParen | Token::LBracket => levels.push(0),
            Token::RParen | Token::RBracket if levels.len() > 1 => drop(levels.pop()),
            Token::Comma => levels.last_mut().into_iter().for_each(|level| *level = 0),
            Token::Whitespace(_) => continue,
            _ => {}
        }
        if let Some(level) = levels.last_mut() {
            *level += 1;
            longest = longest.max(*level);
        }
    }
    longest
}

/// The columns of a statement, whether it writes, and whether it changes the schema.
fn shape(ast: &Ast, scope: &Scope<'_>) -> Result<(Option<Vec<Item>>, bool, bool), SqlError> {
    let returning = |items: &Option<Vec<_>>| items.as_ref().map(|items| scope.projection(items));
    Ok(match ast {
        Ast::Query(query) => (Some(scope.items(query)), false, false),
        Ast::Insert(insert) => (returning(&insert.returning), true, false),
        Ast::Update(update) if !is_plain(&update.table) => {
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

fn unsupported(what: &str) -> SqlError {
    SqlError::unsupported(format!("the builtin engine does not run: {what}"))
        .hint("it is SQLite underneath, for simple SQL; see docs/dsql-local.md")
}

/// Whether there is nothing for SQLite to do: it has one schema, no roles and no grants.
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

/// An index is there as soon as its job has a number: nothing to wait for.
fn waits_for_job(function: &Function) -> bool {
    folded(&function.name) == "wait_for_job"
}

/// Column definitions in a form that keeps PostgreSQL's type in SQLite's catalog.
fn definition(ast: &mut Ast) -> Result<(), SqlError> {
    match ast {
        Ast::CreateTable(table) => {
            strip(&mut table.name);
            table.columns.iter_mut().try_for_each(column)
        }
        Ast::CreateIndex(index) => {
            index.r#async = false;
            index.concurrently = false;
            index.using = None;
            index.include.clear();
            if index.name.is_none() {
                let columns: Vec<String> =
                    index.columns.iter().map(|column| column.column.expr.to_string()).collect();
                let name = format!("{}_{}_idx", folded(&index.table_name), columns.join("_"));
                let name = name.replace(|letter: char| !letter.is_alphanumeric(), "_");
                index.name = Some(ObjectName::from(vec![Ident::new(name)]));
            }
            strip(&mut index.table_name);
            Ok(())
        }
        Ast::AlterTable(table) => {
            strip(&mut table.name);
            for operation in &mut table.operations {
                match operation {
                    AlterTableOperation::AddColumn { column_def, .. } => column(column_def)?,
                    AlterTableOperation::RenameColumn { .. }
                    | AlterTableOperation::RenameTable { .. }
                    | AlterTableOperation::DropColumn { .. } => {}
                    other => return Err(unsupported(&format!("ALTER TABLE {other}"))),
                }
            }
            Ok(())
        }
        Ast::CreateView(view) => {
            strip(&mut view.name);
            Ok(())
        }
        Ast::Drop { names, cascade, restrict, .. } => {
            (*cascade, *restrict) = (false, false);
            names.iter_mut().for_each(strip);
            if names.len() > 1 { Err(unsupported("DROP of several things at once")) } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

fn column(column: &mut ColumnDef) -> Result<(), SqlError> {
    let of = Type::from_sql(&column.data_type)?;
    column.data_type = DataType::Custom(ObjectName::from(vec![Ident::new(of.name())]), vec![]);
    for option in &mut column.options {
        match &mut option.option {
            // SQLite wants parentheses around anything that is no literal.
            ColumnOption::Default(expr) if !matches!(expr, Expr::Value(_)) => {
                *expr = Expr::Nested(Box::new(expr.clone()));
            }
            ColumnOption::Generated { generation_expr: None, .. } | ColumnOption::Identity(_) => {
                return Err(unsupported("identity columns"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Leaves the last part of a name: there is one schema.
fn strip(name: &mut ObjectName) {
    if let Some(last) = name.0.pop() {
        *name = ObjectName(vec![last]);
    }
}

struct Rewrite {
    /// Whether rows were to be locked.
    locks: bool,
    problem: Option<SqlError>,
}

impl VisitorMut for Rewrite {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        // There is one writer: whoever wants to lock becomes it.
        self.locks |= !query.locks.is_empty();
        query.locks.clear();
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<()> {
        strip(relation);
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, alias, args: Some(_), .. } = factor
            && folded(name) == "generate_series"
        {
            // SQLite calls the column `value`, PostgreSQL by the alias of the table.
            let alias = alias.take();
            let table =
                alias.as_ref().map_or_else(|| "generate_series".to_owned(), |alias| alias.name.value.clone());
            let column = alias
                .as_ref()
                .and_then(|alias| alias.columns.first().map(|column| column.name.value.clone()));
            let column = column.unwrap_or_else(|| table.clone());
            match parse(&format!("SELECT value AS \"{column}\" FROM {factor}")) {
                Ok(Ast::Query(subquery)) => {
                    let alias = TableAlias {
                        explicit: true,
                        name: Ident::with_quote('"', table),
                        columns: vec![],
                        at: None,
                    };
                    *factor =
                        TableFactor::Derived { lateral: false, subquery, alias: Some(alias), sample: None };
                }
                Ok(_) => {}
                Err(problem) => self.problem = Some(problem),
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Err(problem) = rewrite(expr) {
            self.problem.get_or_insert(problem);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

fn rewrite(expr: &mut Expr) -> Result<(), SqlError> {
    match expr {
        Expr::Cast { kind, expr: inner, data_type, .. } => {
            *kind = CastKind::Cast;
            let of = Type::from_sql(data_type)?;
            let inner = inner.clone();
            *expr = match of {
                Type::Bool => call("pg_bool", &inner),
                Type::Bytea => call("pg_bytea", &inner),
                _ => cast(inner, of),
            };
        }
        Expr::TypedString(typed) => {
            let of = Type::from_sql(&typed.data_type)?;
            *expr = cast(Box::new(Expr::Value(typed.value.clone())), of);
        }
        Expr::Value(value) => match &mut value.value {
            Value::Placeholder(name) => {
                if let Some(number) = name.strip_prefix('$') {
                    *name = format!("?{number}");
                }
            }
            Value::EscapedStringLiteral(text) => {
                value.value = Value::SingleQuotedString(text.replace('\'', "''"))
            }
            Value::DollarQuotedString(text) => {
                value.value = Value::SingleQuotedString(text.value.replace('\'', "''"));
            }
            _ => {}
        },
        Expr::ILike { negated, expr: inner, pattern, escape_char, .. } => {
            *expr = Expr::Like {
                negated: *negated,
                any: false,
                expr: Box::new(call("lower", inner)),
                pattern: Box::new(call("lower", pattern)),
                escape_char: escape_char.take(),
            };
        }
        // SQLite has no name for the schema of functions, and wants their parentheses.
        Expr::Function(function) => {
            strip(&mut function.name);
            if let Some(ObjectNamePart::Identifier(name)) = function.name.0.first_mut()
                && name.value.eq_ignore_ascii_case("current_timestamp")
            {
                *name = Ident::new("now");
            }
            if matches!(function.args, FunctionArguments::None) {
                let list = FunctionArgumentList { duplicate_treatment: None, args: vec![], clauses: vec![] };
                function.args = FunctionArguments::List(list);
            }
        }
        Expr::CompoundIdentifier(parts) if parts.len() > 2 => {
            parts.drain(..parts.len() - 2);
        }
        Expr::Substring { shorthand, .. } => *shorthand = true,
        Expr::BinaryOp { op: op @ BinaryOperator::PGCustomBinaryOperator(_), .. } => {
            return Err(unsupported(&format!("operator {op}")));
        }
        _ => {}
    }
    Ok(())
}

fn cast(inner: Box<Expr>, of: Type) -> Expr {
    let storage = DataType::Custom(ObjectName::from(vec![Ident::new(of.storage())]), vec![]);
    Expr::Cast { kind: CastKind::Cast, expr: inner, data_type: storage, format: None }
}

fn call(name: &str, argument: &Expr) -> Expr {
    use sqlparser::ast::{FunctionArg, FunctionArgExpr};
    let args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(argument.clone()))];
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: vec![],
        }),
        within_group: vec![],
        filter: None,
        null_treatment: None,
        over: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn parameters_take_the_type_of_what_they_meet() {
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
        assert_eq!(sql("SELECT $1::int FROM public.t"), "SELECT CAST(?1 AS INTEGER) FROM t");
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
            "CREATE TABLE x (id uuid DEFAULT (gen_random_uuid()) PRIMARY KEY, n varchar NOT NULL)"
        );
        assert_eq!(sql("GRANT SELECT ON t TO app"), "");
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
        // As long as that may be, it is walked without harm.
        assert!(plan(&format!("SELECT 1{}", " + 1".repeat(990))).is_ok());
        assert!(plan(&format!("SELECT 1{}", ", 1".repeat(100_000))).is_ok());
    }
}
