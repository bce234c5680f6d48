//! Rewrites the syntax tree of a statement from PostgreSQL's dialect to SQLite's.

use std::ops::ControlFlow;

use sqlparser::ast::{
    AlterTableOperation, BinaryOperator, CastKind, CharacterLength, ColumnDef, ColumnOption, ColumnOptionDef,
    DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident,
    ObjectName, ObjectNamePart, Query, Statement as Ast, TableAlias, TableFactor, Value, VisitMut,
    VisitorMut,
};

use super::infer::folded;
use super::plan::unsupported;
use super::syntax;
use super::types::Type;
use crate::error::SqlError;

/// Rewrites a statement. Returns whether it locks rows.
pub(super) fn to_sqlite(ast: &mut Ast) -> Result<bool, SqlError> {
    definition(ast)?;
    let mut rewrite = Rewrite { locks: false, problem: None };
    let (ControlFlow::Continue(()) | ControlFlow::Break(())) = VisitMut::visit(ast, &mut rewrite);
    rewrite.problem.map_or(Ok(rewrite.locks), Err)
}

/// Writes column definitions so that SQLite's catalog keeps PostgreSQL's types.
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
    let mut guards = guards(&column.name, of, length(&column.data_type))?;
    column.data_type = DataType::Custom(ObjectName::from(vec![Ident::new(of.name())]), vec![]);
    for option in &mut column.options {
        match &mut option.option {
            // SQLite requires parentheses around a default that is not a literal.
            ColumnOption::Default(expr) if !matches!(expr, Expr::Value(_)) => {
                *expr = Expr::Nested(Box::new(expr.clone()));
            }
            ColumnOption::Generated { generation_expr: None, .. } | ColumnOption::Identity(_) => {
                return Err(unsupported("identity columns"));
            }
            _ => {}
        }
    }
    column.options.append(&mut guards);
    Ok(())
}

/// Check constraints that reject values which the column's type cannot hold; SQLite would store them. The
/// name of each is the error that it raises.
fn guards(column: &Ident, of: Type, length: Option<u64>) -> Result<Vec<ColumnOptionDef>, SqlError> {
    let own = Ident::with_quote('"', &column.value);
    let mut checks = Vec::new();
    if let Some((least, most)) = of.range() {
        checks.push((of.invalid_input(), format!("typeof({own}) <> 'text'")));
        checks
            .push((of.out_of_range(), format!("typeof({own}) = 'text' OR {own} BETWEEN {least} AND {most}")));
    }
    if let (Type::Varchar | Type::Bpchar, Some(length)) = (of, length) {
        let name = if of == Type::Varchar { "character varying" } else { "character" };
        let error = SqlError::new("22001", format!("value too long for type {name}({length})"));
        checks.push((error, format!("length({own}) <= {length}")));
    }
    if checks.is_empty() {
        return Ok(Vec::new());
    }
    let constraint = |(error, check): &(SqlError, String)| format!(" CONSTRAINT \"{error}\" CHECK ({check})");
    let written: String = checks.iter().map(constraint).collect();
    match syntax::parse(&format!("CREATE TABLE x (y int{written})"))? {
        Ast::CreateTable(table) => Ok(table.columns.into_iter().flat_map(|column| column.options).collect()),
        _ => Ok(Vec::new()),
    }
}

fn length(of: &DataType) -> Option<u64> {
    match of {
        DataType::Varchar(length)
        | DataType::CharacterVarying(length)
        | DataType::CharVarying(length)
        | DataType::Character(length)
        | DataType::Char(length) => match length {
            Some(CharacterLength::IntegerLength { length, .. }) => Some(*length),
            Some(CharacterLength::Max) => None,
            None => matches!(of, DataType::Character(_) | DataType::Char(_)).then_some(1),
        },
        _ => None,
    }
}

/// Keeps the last part of a name: there is one schema.
fn strip(name: &mut ObjectName) {
    if let Some(last) = name.0.pop() {
        *name = ObjectName(vec![last]);
    }
}

struct Rewrite {
    locks: bool,
    problem: Option<SqlError>,
}

impl VisitorMut for Rewrite {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        // There is one writer: a query that locks rows takes it.
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
            // SQLite names the column `value`; PostgreSQL names it by the table's alias.
            let alias = alias.take();
            let table =
                alias.as_ref().map_or_else(|| "generate_series".to_owned(), |alias| alias.name.value.clone());
            let column = alias
                .as_ref()
                .and_then(|alias| alias.columns.first().map(|column| column.name.value.clone()));
            let column = column.unwrap_or_else(|| table.clone());
            match syntax::parse(&format!("SELECT value AS \"{column}\" FROM {factor}")) {
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
                _ => convert(inner, of),
            };
        }
        Expr::TypedString(typed) => {
            let of = Type::from_sql(&typed.data_type)?;
            *expr = convert(Box::new(Expr::Value(typed.value.clone())), of);
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
        // SQLite knows no schema of functions, and requires parentheses.
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
        // SQLite would return NULL.
        Expr::BinaryOp { op: BinaryOperator::Divide | BinaryOperator::Modulo, right, .. } => {
            **right = call("pg_divisor", right);
        }
        Expr::BinaryOp { op: op @ BinaryOperator::PGCustomBinaryOperator(_), .. } => {
            return Err(unsupported(&format!("operator {op}")));
        }
        _ => {}
    }
    Ok(())
}

/// A cast that fails for text that is not a number of the type. SQLite's own cast accepts anything.
fn convert(inner: Box<Expr>, of: Type) -> Expr {
    if Type::NUMBERS.contains(&of) {
        // The outer cast sets the affinity by which SQLite compares.
        return cast(Box::new(call(&format!("pg_{}", of.name()), &inner)), of);
    }
    cast(inner, of)
}

fn cast(inner: Box<Expr>, of: Type) -> Expr {
    let storage = DataType::Custom(ObjectName::from(vec![Ident::new(of.storage())]), vec![]);
    Expr::Cast { kind: CastKind::Cast, expr: inner, data_type: storage, format: None }
}

fn call(name: &str, argument: &Expr) -> Expr {
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
