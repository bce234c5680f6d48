//! The schema, as files of SQL.

/// One version of the schema: a file of SQL statements. Each statement is a transaction of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaFile {
    /// Its name. The version is what stands before the first underscore.
    pub name: &'static str,
    /// Its text.
    pub sql: &'static str,
}

/// All versions, in their order.
pub const FILES: &[SchemaFile] = &[
    SchemaFile { name: "1.0_base.sql", sql: include_str!("../schema/1.0_base.sql") },
    SchemaFile {
        name: "1.1_current_chasm_executions.sql",
        sql: include_str!("../schema/1.1_current_chasm_executions.sql"),
    },
];

/// The newest version, which the stores are written for.
pub const VERSION: &str = "1.1";

/// The oldest version of the program that works with this schema.
pub const MIN_COMPATIBLE_VERSION: &str = "1.0";

impl SchemaFile {
    /// Its version.
    #[must_use]
    pub fn version(&self) -> &'static str {
        self.name.split('_').next().unwrap_or(self.name)
    }

    /// Its statements, without comments.
    pub fn statements(&self) -> impl Iterator<Item = String> {
        // Our files have no semicolon but at the end of a statement, and comments only on lines of their own.
        let lines = self.sql.lines().filter(|line| !line.trim_start().starts_with("--"));
        let sql = lines.collect::<Vec<_>>().join("\n");
        let statements: Vec<String> = sql.split(';').map(|part| part.trim().to_owned()).collect();
        statements.into_iter().filter(|statement| !statement.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_in_order_and_end_with_the_version_of_the_stores() {
        let versions: Vec<_> = FILES.iter().map(SchemaFile::version).collect();
        assert_eq!(versions, [MIN_COMPATIBLE_VERSION, VERSION]);
    }

    /// What Aurora DSQL did not have when the specification was written, and older clusters still do not have.
    #[test]
    fn only_what_every_cluster_accepts_is_used() {
        let statements: Vec<String> = FILES.iter().flat_map(SchemaFile::statements).collect();
        assert_eq!(statements.iter().filter(|sql| sql.starts_with("CREATE TABLE")).count(), 39);
        for sql in &statements {
            let upper = sql.to_uppercase();
            for word in ["SERIAL", "CHECK", "REFERENCES", "IDENTITY"] {
                assert!(!upper.contains(word), "{word} in {sql}");
            }
            let words = || upper.split(|c: char| !c.is_alphanumeric() && c != '_');
            if words().any(|word| word == "INDEX") {
                assert!(upper.contains("INDEX ASYNC"), "{sql}");
            } else {
                assert!(!words().any(|word| word == "UNIQUE"), "{sql}");
            }
            let defaults = upper.split("DEFAULT ").skip(1);
            for default in defaults {
                assert!(default.starts_with('0') || default.starts_with("''"), "{sql}");
            }
            for identifier in ["NAMESPACE_ID", "RUN_ID", "TREE_ID", "BRANCH_ID", "TASK_QUEUE_ID", "HOST_ID"] {
                for line in upper.lines().filter(|line| line.trim_start().starts_with(identifier)) {
                    assert!(line.contains(" UUID NOT NULL"), "{line}");
                }
            }
        }
    }
}
