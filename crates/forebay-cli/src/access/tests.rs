use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Call {
    #[command(flatten)]
    access: Access,
}

/// A file with this text. Dropping it removes the file.
pub(crate) struct Written(PathBuf);

impl Written {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let path = env::temp_dir().join(format!("forebay-flight-{name}-{}", std::process::id()));
        fs::write(&path, text).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

fn login(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Login, String> {
    let find =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let call = Call::try_parse_from([&["call"], arguments].concat()).expect("it is understood");
    call.access.login(find).map_err(|error| error.to_string())
}

#[test]
fn the_login_comes_from_files_and_variables() {
    let secret = Written::new("secret", "hush\n");
    let file = secret.path();
    let user = |name: &str, password: &str| Ok(Login::Password(name.to_owned(), password.to_owned()));
    let token = |token: &str| Ok(Login::Token(token.to_owned()));
    let variables = [("FLIGHT_SQL_USER", "ann"), ("FLIGHT_SQL_PASSWORD", "p"), ("FLIGHT_SQL_TOKEN", "t")];
    assert!(login(&[], &[]) == Ok(Login::None));
    assert!(login(&["--user", "me", "--password-file", file], &[]) == user("me", "hush"));
    assert!(login(&["--token-file", file], &variables) == token("hush"));
    assert!(login(&[], &variables) == token("t"));
    assert!(login(&[], &variables[..2]) == user("ann", "p"));
    assert!(login(&["--user", "me"], &variables) == user("me", "p"), "the command line goes first");
    assert!(login(&["--password-file", file], &variables) == user("ann", "hush"));
    for (arguments, said) in [
        (&["--user", "me"][..], "no password: give --password-file"),
        (&["--password-file", file], "no user: give --user"),
        (&["--token-file", "/does/not/exist"], "cannot read /does/not/exist"),
    ] {
        let error = login(arguments, &[]).err().unwrap();
        assert!(error.contains(said) && !error.contains("hush"), "{error}");
    }
}

#[test]
fn the_url_comes_from_the_arguments_or_a_variable() {
    let variable = |name: &str| (name == "FLIGHT_SQL_URL").then(|| "grpc://v:1".to_owned());
    assert_eq!(url(Some("grpc://g:1".to_owned()), variable).unwrap(), "grpc://g:1");
    assert_eq!(url(None, variable).unwrap(), "grpc://v:1");
    let nowhere = url(None, |_| None).expect_err("it is nowhere").to_string();
    assert!(nowhere.contains("FLIGHT_SQL_URL"), "{nowhere}");
    let named = url(Some("grpc://me:hush@localhost:1".to_owned()), |_| None).expect_err("a password");
    assert!(named.to_string().contains("--user and --password-file") && !named.to_string().contains("hush"));
}
