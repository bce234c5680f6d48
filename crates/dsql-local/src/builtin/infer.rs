//! Infers the types of columns and parameters. SQLite does not know them, and the protocol needs them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use sqlparser::ast::{
    AssignmentTarget, BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    Insert, LimitClause, ObjectName, OnConflictAction, OnInsert, Query, SelectItem, SetExpr, Statement,
    TableFactor, UnaryOperator, Value, Visit, Visitor, visit_expressions,
};

use super::types::Type;

/// The columns of a table, from the database.
pub(super) type Catalog<'a> = &'a dyn Fn(&str) -> Vec<(String, Type)>;

/// A result column: its PostgreSQL name, and its type if known. None stands for `*`.
pub(super) type Item = Option<(String, Option<Type>)>;

/// The columns and parameters that are visible in a statement.
pub(super) struct Scope<'a> {
    catalog: Catalog<'a>,
    /// Table name or alias, column name, type.
    columns: Vec<(String, String, Type)>,
    pub(super) parameters: BTreeMap<usize, Option<Type>>,
}

/// The number of a parameter, from 1.
pub(super) fn placeholder(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Placeholder(text) => text.strip_prefix('$')?.parse().ok().filter(|number| *number > 0),
            _ => None,
        },
        Expr::Nested(inner) => placeholder(inner),
        _ => None,
    }
}

/// The last part of a name, folded as PostgreSQL folds it.
pub(super) fn folded(name: &ObjectName) -> String {
    let part = name.0.last().and_then(|part| part.as_ident());
    part.map_or_else(String::new, |ident| match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_ascii_lowercase(),
    })
}

/// The statement itself. The parser reads a write after WITH as the body of a query.
pub(super) fn core(statement: &Statement) -> &Statement {
    match statement {
        Statement::Query(query) => match &*query.body {
            SetExpr::Insert(inner)
            | SetExpr::Update(inner)
            | SetExpr::Delete(inner)
            | SetExpr::Merge(inner) => core(inner),
            _ => statement,
        },
        _ => statement,
    }
}

impl<'a> Scope<'a> {
    /// Analyses a statement. `given` are the types that the client declared.
    pub(super) fn of(statement: &Statement, catalog: Catalog<'a>, given: &[Option<Type>]) -> Self {
        let parameters = (1..).zip(given.iter().copied()).collect();
        let mut scope = Self { catalog, columns: Vec::new(), parameters };
        scope.collect(statement);
        // Twice: a type found late may determine an earlier one.
        for _ in 0..2 {
            scope.learn(statement);
        }
        scope
    }

    fn collect(&mut self, statement: &Statement) {
        struct Tables(Vec<(String, String)>, Vec<(String, Query)>);
        impl Visitor for Tables {
            type Break = ();

            fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
                match factor {
                    TableFactor::Table { name, alias, .. } => {
                        let alias =
                            alias.as_ref().map_or_else(|| folded(name), |alias| alias.name.value.clone());
                        self.0.push((alias, folded(name)));
                    }
                    TableFactor::Derived { alias: Some(alias), subquery, .. } => {
                        self.1.push((alias.name.value.clone(), (**subquery).clone()));
                    }
                    _ => {}
                }
                ControlFlow::Continue(())
            }

            fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
                let ctes = query.with.iter().flat_map(|with| &with.cte_tables);
                self.1.extend(ctes.map(|cte| (cte.alias.name.value.clone(), (*cte.query).clone())));
                ControlFlow::Continue(())
            }
        }
        let mut tables = Tables(Vec::new(), Vec::new());
        // The visitor never breaks.
        let (ControlFlow::Continue(()) | ControlFlow::Break(())) = statement.visit(&mut tables);
        if let Statement::Insert(Insert { table, .. }) = core(statement) {
            let name = table.to_string().to_ascii_lowercase();
            let name = name.rsplit('.').next().unwrap_or("").trim_matches('"').to_owned();
            tables.0.push((name.clone(), name));
        }
        for (alias, table) in tables.0 {
            let columns = (self.catalog)(&table);
            self.columns.extend(columns.into_iter().map(|(name, of)| (alias.clone(), name, of)));
        }
        // From the inside out, so that the columns of an inner query are known to the outer one.
        for (alias, query) in tables.1.iter().rev() {
            let items = self.items(query);
            let known = items.into_iter().flatten().filter_map(|(name, of)| Some((alias.clone(), name, of?)));
            self.columns.extend(known.collect::<Vec<_>>());
        }
    }

    fn learn(&mut self, statement: &Statement) {
        // The visitor never breaks.
        let (ControlFlow::Continue(()) | ControlFlow::Break(())) = visit_expressions(statement, |expr| {
            self.learn_from(expr);
            ControlFlow::<()>::Continue(())
        });
        match core(statement) {
            Statement::Insert(insert) => self.learn_insert(insert),
            Statement::Update(update) => {
                for assignment in &update.assignments {
                    self.learn_assignment(&assignment.target, &assignment.value);
                }
            }
            Statement::Query(query) => self.learn_limits(query),
            _ => {}
        }
    }

    fn learn_insert(&mut self, insert: &Insert) {
        let table = insert.table.to_string().to_ascii_lowercase();
        let columns = (self.catalog)(table.rsplit('.').next().unwrap_or("").trim_matches('"'));
        let types: Vec<Option<Type>> = if insert.columns.is_empty() {
            columns.iter().map(|(_, of)| Some(*of)).collect()
        } else {
            let find = |name: String| columns.iter().find(|(own, _)| *own == name).map(|(_, of)| *of);
            insert.columns.iter().map(|column| find(folded(column))).collect()
        };
        match insert.source.as_ref().map(|source| &*source.body) {
            Some(SetExpr::Values(values)) => {
                for row in &values.rows {
                    let row: &[Expr] = &row.content;
                    row.iter().zip(&types).for_each(|(expr, of)| self.note(expr, *of));
                }
            }
            Some(SetExpr::Select(select)) => {
                for (item, of) in select.projection.iter().zip(&types) {
                    if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                        self.note(expr, *of);
                    }
                }
            }
            _ => {}
        }
        if let Some(OnInsert::OnConflict(conflict)) = &insert.on
            && let OnConflictAction::DoUpdate(update) = &conflict.action
        {
            for assignment in &update.assignments {
                self.learn_assignment(&assignment.target, &assignment.value);
            }
        }
    }

    fn learn_assignment(&mut self, target: &AssignmentTarget, value: &Expr) {
        if let AssignmentTarget::ColumnName(name) = target {
            let of = self.column(None, &folded(name));
            self.note(value, of);
        }
    }

    fn learn_limits(&mut self, query: &Query) {
        if let Some(LimitClause::LimitOffset { limit, offset, .. }) = &query.limit_clause {
            let offset = offset.as_ref().map(|offset| &offset.value);
            limit.iter().chain(offset).for_each(|expr| self.note(expr, Some(Type::Int8)));
        }
    }

    fn learn_from(&mut self, expr: &Expr) {
        if let Some(number) = placeholder(expr) {
            self.parameters.entry(number).or_default();
        }
        match expr {
            Expr::Cast { expr, data_type, .. } => {
                let of = Type::from_sql(data_type).ok();
                self.note(expr, of);
            }
            Expr::BinaryOp { left, right, .. } => self.alike(&[left, right]),
            Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => {
                self.alike(&[left, right])
            }
            Expr::Between { expr, low, high, .. } => self.alike(&[expr, low, high]),
            Expr::InList { expr, list, .. } => {
                self.alike(&std::iter::once(&**expr).chain(list).collect::<Vec<_>>());
            }
            Expr::Like { expr, pattern, .. } | Expr::ILike { expr, pattern, .. } => {
                self.note(expr, Some(Type::Text));
                self.note(pattern, Some(Type::Text));
            }
            Expr::Function(function) if matches!(folded(&function.name).as_str(), "coalesce" | "nullif") => {
                self.alike(&arguments(function));
            }
            _ => {}
        }
    }

    /// All expressions have the same type; parameters take it from the others.
    fn alike(&mut self, exprs: &[&Expr]) {
        let of = exprs.iter().find_map(|expr| placeholder(expr).is_none().then(|| self.type_of(expr))?);
        exprs.iter().for_each(|expr| self.note(expr, of));
    }

    fn note(&mut self, expr: &Expr, of: Option<Type>) {
        if let Some(number) = placeholder(expr) {
            let known = self.parameters.entry(number).or_default();
            *known = known.or(of);
        }
    }

    fn column(&self, table: Option<&str>, name: &str) -> Option<Type> {
        let fits = |(own_table, own, _): &&(String, String, Type)| {
            own.eq_ignore_ascii_case(name) && table.is_none_or(|table| own_table.eq_ignore_ascii_case(table))
        };
        self.columns.iter().find(fits).map(|(.., of)| *of)
    }

    /// The columns that a query returns.
    pub(super) fn items(&self, query: &Query) -> Vec<Item> {
        self.set_items(&query.body)
    }

    fn set_items(&self, body: &SetExpr) -> Vec<Item> {
        match body {
            SetExpr::Select(select) => self.projection(&select.projection),
            SetExpr::Query(query) => self.items(query),
            SetExpr::SetOperation { left, .. } => self.set_items(left),
            SetExpr::Values(values) => {
                let row: &[Expr] = values.rows.first().map_or(&[], |row| &row.content);
                let name = |index: usize| format!("column{}", index + 1);
                row.iter().enumerate().map(|(index, expr)| Some((name(index), self.type_of(expr)))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The columns of a SELECT list or of RETURNING.
    pub(super) fn projection(&self, items: &[SelectItem]) -> Vec<Item> {
        let item = |item: &SelectItem| match item {
            SelectItem::UnnamedExpr(expr) => Some((name_of(expr), self.type_of(expr))),
            SelectItem::ExprWithAlias { expr, alias } => Some((alias.value.clone(), self.type_of(expr))),
            _ => None,
        };
        items.iter().map(item).collect()
    }

    pub(super) fn type_of(&self, expr: &Expr) -> Option<Type> {
        match expr {
            Expr::Value(value) => match &value.value {
                Value::Number(digits, _) => Some(number(digits)),
                Value::Boolean(_) => Some(Type::Bool),
                Value::Null => None,
                Value::Placeholder(_) => self.parameters.get(&placeholder(expr)?).copied().flatten(),
                _ => Some(Type::Text),
            },
            Expr::Identifier(ident) => self.column(None, &ident.value),
            Expr::CompoundIdentifier(parts) => {
                let mut last = parts.iter().rev();
                let (name, table) = (last.next()?, last.next());
                self.column(table.map(|table| table.value.as_str()), &name.value)
            }
            Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => self.type_of(inner),
            Expr::Cast { data_type, .. } => Type::from_sql(data_type).ok(),
            Expr::TypedString(typed) => Type::from_sql(&typed.data_type).ok(),
            Expr::UnaryOp { op: UnaryOperator::Not, .. } => Some(Type::Bool),
            Expr::UnaryOp { expr, .. } => self.type_of(expr),
            Expr::BinaryOp { left, op, right } => self.operation(left, op, right),
            Expr::Case { conditions, else_result, .. } => {
                let results = conditions.iter().map(|when| &when.result).chain(else_result.as_deref());
                self.common(results)
            }
            Expr::Subquery(query) => self.items(query).into_iter().next()??.1,
            Expr::Function(function) => self.function(function),
            Expr::Extract { .. } => Some(Type::Numeric),
            Expr::Substring { .. } | Expr::Trim { .. } | Expr::Overlay { .. } => Some(Type::Text),
            Expr::Position { .. } => Some(Type::Int4),
            Expr::Ceil { expr, .. } | Expr::Floor { expr, .. } => self.type_of(expr),
            Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::IsTrue(_)
            | Expr::IsNotTrue(_)
            | Expr::IsFalse(_)
            | Expr::IsNotFalse(_)
            | Expr::IsDistinctFrom(..)
            | Expr::IsNotDistinctFrom(..)
            | Expr::InList { .. }
            | Expr::InSubquery { .. }
            | Expr::Between { .. }
            | Expr::Like { .. }
            | Expr::ILike { .. }
            | Expr::Exists { .. } => Some(Type::Bool),
            _ => None,
        }
    }

    /// The first known type; among numbers, the widest.
    fn common<'e>(&self, exprs: impl Iterator<Item = &'e Expr>) -> Option<Type> {
        let numbers = |left: Type, right: Type| {
            if Type::NUMBERS.contains(&left) && Type::NUMBERS.contains(&right) {
                wider(left, right)
            } else {
                left
            }
        };
        exprs.filter_map(|expr| self.type_of(expr)).reduce(numbers)
    }

    fn operation(&self, left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Type> {
        match op {
            BinaryOperator::Plus
            | BinaryOperator::Minus
            | BinaryOperator::Multiply
            | BinaryOperator::Divide
            | BinaryOperator::Modulo => match (self.type_of(left), self.type_of(right)) {
                (Some(left), Some(right)) => Some(wider(left, right)),
                (one, other) => one.or(other),
            },
            BinaryOperator::StringConcat | BinaryOperator::LongArrow => Some(Type::Text),
            BinaryOperator::Arrow => Some(Type::Jsonb),
            BinaryOperator::BitwiseAnd | BinaryOperator::BitwiseOr => self.type_of(left),
            _ => Some(Type::Bool),
        }
    }

    fn function(&self, function: &Function) -> Option<Type> {
        let first = || arguments(function).first().and_then(|expr| self.type_of(expr));
        match folded(&function.name).as_str() {
            "count" | "row_number" | "rank" | "dense_rank" => Some(Type::Int8),
            "sum" => Some(match first() {
                Some(Type::Int2 | Type::Int4) => Type::Int8,
                Some(Type::Float4 | Type::Float8) => Type::Float8,
                _ => Type::Numeric,
            }),
            "avg" => Some(match first() {
                Some(Type::Float4 | Type::Float8) => Type::Float8,
                _ => Type::Numeric,
            }),
            "coalesce" | "nullif" => self.common(arguments(function).into_iter()),
            "min" | "max" | "abs" | "round" | "ceil" | "floor" | "lag" | "lead" => first(),
            "now"
            | "current_timestamp"
            | "transaction_timestamp"
            | "statement_timestamp"
            | "clock_timestamp" => Some(Type::Timestamptz),
            "length" | "char_length" | "octet_length" | "instr" | "pg_backend_pid" => Some(Type::Int4),
            "generate_series" => first(),
            "gen_random_uuid" => Some(Type::Uuid),
            "random" => Some(Type::Float8),
            _ => Some(Type::Text),
        }
    }
}

/// The name that PostgreSQL gives to a column without an alias.
fn name_of(expr: &Expr) -> String {
    match expr {
        Expr::Identifier(ident) => ident.value.clone(),
        Expr::CompoundIdentifier(parts) => parts.last().map_or_else(String::new, |part| part.value.clone()),
        Expr::Function(function) => folded(&function.name),
        Expr::Nested(inner) => name_of(inner),
        Expr::Cast { expr, data_type, .. } => match name_of(expr).as_str() {
            "?column?" => Type::from_sql(data_type).map_or("?column?", Type::name).to_owned(),
            name => name.to_owned(),
        },
        Expr::Case { .. } => "case".to_owned(),
        Expr::Exists { .. } => "exists".to_owned(),
        Expr::Value(value) if matches!(value.value, Value::Boolean(_)) => "bool".to_owned(),
        _ => "?column?".to_owned(),
    }
}

fn number(digits: &str) -> Type {
    if digits.parse::<i32>().is_ok() {
        Type::Int4
    } else if digits.parse::<i64>().is_ok() {
        Type::Int8
    } else {
        Type::Numeric
    }
}

/// The type of an operation on two numbers; with a date or the like, that type.
fn wider(left: Type, right: Type) -> Type {
    let order = [Type::Int2, Type::Int4, Type::Int8, Type::Numeric, Type::Float4, Type::Float8];
    let rank = |of: Type| order.iter().position(|own| *own == of);
    match (rank(left), rank(right)) {
        (Some(own), Some(other)) => order[own.max(other)],
        (Some(_), None) => right,
        (None, _) => left,
    }
}

fn arguments(function: &Function) -> Vec<&Expr> {
    let FunctionArguments::List(list) = &function.args else { return Vec::new() };
    let plain = list.args.iter().filter_map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    plain.collect()
}
