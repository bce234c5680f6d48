use clap::Parser;

use super::*;
use crate::access::tests::Written;

#[derive(Debug, Parser)]
struct Call {
    #[command(flatten)]
    options: Options,
}

fn called(arguments: &[&str]) -> Options {
    Call::try_parse_from([&["sql"], arguments].concat()).expect("it is understood").options
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_done() {
    let headers = Written::new("options-headers", "x-key=hush\nhush\n");
    let options = |arguments: &[&str]| called(arguments).server.options(arguments[0], |_| None);
    let refusals: [(&[&str], &str); 5] = [
        (&["localhost"], "has no scheme"),
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
