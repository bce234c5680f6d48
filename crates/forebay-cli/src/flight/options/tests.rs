use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Call {
    #[command(flatten)]
    options: Options,
}

fn called(arguments: &[&str]) -> Options {
    Call::try_parse_from([&["sql"], arguments].concat()).expect("it is understood").options
}

/// A file with this text, gone with it.
struct Written(PathBuf);

impl Written {
    fn new(name: &str, text: &str) -> Self {
        let path = env::temp_dir().join(format!("forebay-flight-{name}-{}", std::process::id()));
        fs::write(&path, text).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

fn who(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Who, String> {
    let find =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    called(&[&["grpc://h:1"], arguments].concat()).server.who(find).map_err(|error| error.to_string())
}

#[test]
fn who_to_be_comes_from_files_and_variables() {
    let secret = Written::new("secret", "hush\n");
    let file = secret.path();
    let user = |name: &str, password: &str| Ok(Who::User(name.to_owned(), password.to_owned()));
    let token = |token: &str| Ok(Who::Token(token.to_owned()));
    let variables = [("FLIGHT_SQL_USER", "ann"), ("FLIGHT_SQL_PASSWORD", "p"), ("FLIGHT_SQL_TOKEN", "t")];
    assert!(who(&[], &[]) == Ok(Who::Nobody));
    assert!(who(&["--user", "me", "--password-file", file], &[]) == user("me", "hush"));
    assert!(who(&["--token-file", file], &variables) == token("hush"));
    assert!(who(&[], &variables) == token("t"));
    assert!(who(&[], &variables[..2]) == user("ann", "p"));
    assert!(who(&["--user", "me"], &variables) == user("me", "p"), "the command line goes first");
    assert!(who(&["--password-file", file], &variables) == user("ann", "hush"));
    for (arguments, said) in [
        (&["--user", "me"][..], "no password: give --password-file"),
        (&["--password-file", file], "no user: give --user"),
        (&["--token-file", "/does/not/exist"], "cannot read /does/not/exist"),
    ] {
        let error = who(arguments, &[]).err().unwrap();
        assert!(error.contains(said) && !error.contains("hush"), "{error}");
    }
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_done() {
    let headers = Written::new("headers", "x-key=hush\nhush\n");
    let options = |arguments: &[&str]| called(arguments).server.options(arguments[0], |_| None);
    let refusals: [(&[&str], &str); 6] = [
        (&["localhost"], "has no scheme"),
        (&["grpc://me:hush@localhost:1"], "--user and --password-file"),
        (&["grpc://h:1", "--header", "nothing"], "--header NAME=VALUE"),
        (&["grpc://h:1", "--header", "Authorization=Bearer hush"], "--token-file"),
        (&["grpc://h:1", "--header-file", headers.path()], "line 2: write NAME=VALUE"),
        (&["grpc://h:1", "--tls-server-name", "x"], "grpc+tls://"),
    ];
    for (arguments, said) in refusals {
        let error = options(arguments).expect_err("it is refused").to_string();
        assert!(error.contains(said) && !error.contains("hush"), "{error}");
    }
    assert!(options(&["grpc://h:1", "--header", "x-tenant=blue", "--header", "x-a=b=c"]).is_ok());
}

#[test]
fn what_excludes_each_other_is_not_accepted() {
    for arguments in [
        &["grpc://h:1", "-c", "SELECT 1", "--file", "x"][..],
        &["grpc://h:1", "--json", "--format", "csv"],
        &["grpc://h:1", "--user", "me", "--token-file", "x"],
        &["grpc://h:1", "--tls-key", "x"],
        &["grpc://h:1", "--timeout", "0s"],
        &["grpc://h:1", "--timeout", "soon"],
    ] {
        let refused = Call::try_parse_from([&["sql"], arguments].concat());
        assert_eq!(refused.expect_err("it is refused").exit_code(), 2, "{arguments:?}");
    }
    assert_eq!(called(&["grpc://h:1", "--json"]).format(), Format::Json);
    assert_eq!(called(&["grpc://h:1"]).format(), Format::Table);
    assert_eq!(called(&["grpc://h:1", "--timeout", "1m30s"]).timeout, Some(Duration::from_secs(90)));
}
