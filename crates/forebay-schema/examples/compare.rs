//! Compares what is reported about files beforehand with what a local Aurora DSQL does with each statement.
//!
//! `cargo run -p forebay-schema --example compare DIRECTORY`; `crates/forebay-schema/public-migrations` fetches migrations of public
//! projects, and runs it.

use std::collections::BTreeMap;
use std::sync::Arc;

use dsql_local::{Cluster, Config, Credentials, EngineKind};
use forebay_dsql::{
    Dsql, Options, RootCertificates, SignFuture, Signed, Signer, Token, TokenError, TokenRequest,
};
use forebay_schema::{Finding, Migrations, Migrator, Rules};

struct Keys(Arc<Cluster>);

impl Signer for Keys {
    fn sign<'a>(&'a self, request: &'a TokenRequest) -> SignFuture<'a> {
        Box::pin(async {
            let token = self.0.token(&request.identity.user);
            let token = token.ok_or_else(|| TokenError::credentials("the cluster has no key"))?;
            Ok(Signed { token: Token::new(token), credentials_expire: None })
        })
    }
}

/// What the server says if something is missing, or there already, that an earlier statement should have made or removed.
const CONSEQUENCES: [&str; 12] = [
    "42P01", "42883", "42703", "42704", "3F000", "42P07", "42701", "42723", "42P16", "42846", "42710",
    "55000",
];

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).ok_or("the directory with the files is missing")?;
    let migrations = Migrations::from_dir(&directory)?;
    let credentials = vec![Credentials::new("AKIDEXAMPLE", "not-a-secret")];
    let cluster =
        Arc::new(Cluster::start(Config { engine: EngineKind::Postgres, credentials, ..Config::default() })?);
    let options = Options::builder(cluster.endpoint())
        .port(cluster.address().port())
        .region(cluster.region())
        .roots(RootCertificates::Pem(cluster.ca_pem().as_bytes().into()))
        .max_connections(1)
        .build()?;
    let dsql = Dsql::connect(options, Keys(Arc::clone(&cluster))).await?;
    let findings = Migrator::check(&migrations, Rules::Today);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for file in migrations.files() {
        let texts: Vec<(usize, &str)> = file.statements_with_lines().collect();
        for (at, (line, text)) in texts.iter().enumerate() {
            let next = texts.get(at + 1).map_or(usize::MAX, |(line, _)| *line);
            let is_here =
                |one: &&Finding| one.file == file.path() && (*line..next.max(line + 1)).contains(&one.line);
            let reported: Vec<&str> =
                findings.iter().filter(is_here).map(|one| one.message.as_str()).collect();
            let verb = text.split_whitespace().next().unwrap_or_default().to_lowercase();
            // These belong together with others; each statement runs by itself here.
            if ["begin", "commit", "start", "end"].contains(&verb.as_str()) {
                continue;
            }
            let connection = dsql.acquire().await?;
            let mut answer = connection.batch_execute(text).await;
            while answer.as_ref().is_err_and(|error| error.code().is_some_and(|code| code.code() == "40001"))
            {
                answer = connection.batch_execute(text).await;
            }
            let refused = answer.err().map(|error| {
                let told =
                    error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned());
                (error.code().map_or("", |code| code.code()).to_owned(), told)
            });
            let verdict = match (&refused, reported.is_empty()) {
                (None, true) => "accepted, not reported",
                (Some(_), false) => "refused, reported",
                (Some((code, _)), true) if CONSEQUENCES.contains(&code.as_str()) => {
                    "fails for want of an earlier one"
                }
                (Some(_), true) => "MISSED",
                (None, false) => "FALSE",
            };
            *counts.entry(verdict).or_default() += 1;
            if !["accepted, not reported"].contains(&verdict) {
                let (code, said) = refused.unwrap_or_default();
                println!("{}:{line}: {verdict}: {code} {said} | {}", file.path(), reported.join("; "));
            }
        }
    }
    for (verdict, count) in &counts {
        println!("{count:>5} {verdict}");
    }
    let wrong = ["MISSED", "FALSE"].iter().filter_map(|verdict| counts.get(verdict)).sum::<usize>();
    if wrong > 0 { Err(format!("{wrong} statements are judged wrongly").into()) } else { Ok(()) }
}
