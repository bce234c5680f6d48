use super::*;
use crate::users::Mode;

fn toml(text: &str) -> ConfigBuilder {
    ConfigBuilder::default().toml(Path::new("/etc/forebay/gateway.toml"), text)
}

fn problems(builder: ConfigBuilder) -> String {
    builder.build().unwrap_err().to_string()
}

#[test]
fn the_defaults_are_for_this_machine_and_need_a_password() {
    let config = ConfigBuilder::default().build().unwrap();
    assert!(config.listen.iter().all(|address| address.ip().is_loopback()));
    assert_eq!(config.unix_socket.as_ref().unwrap().path(), Path::new("/tmp/.s.PGSQL.6432"));
    assert_eq!((config.auth, config.mode), (Authentication::Scram, Mode::Session));
    assert!(config.metrics_listen.is_none() && config.worker_threads > 0 && config.timeouts.query.is_none());
}

/// The manual's table is made from this text.
#[test]
fn the_defaults_in_the_table_are_those_that_hold() {
    let prose = ["unix_socket_mode", "worker_threads"];
    let given =
        SETTINGS.iter().filter(|setting| !setting.default.is_empty() && !prose.contains(&setting.key));
    let builder =
        given.fold(ConfigBuilder::default(), |builder, setting| builder.flag(setting.key, setting.default));
    assert_eq!(builder.build().unwrap(), ConfigBuilder::default().build().unwrap());
}

#[test]
fn a_flag_overrides_a_variable_and_a_variable_the_file() {
    let variables =
        [("FOREBAY_GATEWAY_MAX_CLIENTS", "2"), ("FOREBAY_GATEWAY_MODE", "elastic"), ("OTHER", "x")];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let text = "max_clients = 1\nmode = 'session'\nlisten = ['127.0.0.1:1', '[::1]:1']\nusers_file = 'u.toml'\nquery_timeout = '5s'\n";
    let config =
        toml(text).environment(variables).flag("max_clients", "3").flag("listen", "").build().unwrap();
    assert_eq!((config.limits.clients, config.mode), (3, Mode::Elastic));
    assert_eq!(config.users_file, Path::new("/etc/forebay/u.toml"));
    assert_eq!(config.timeouts.query, Some(Duration::from_secs(5)));
    assert!(config.listen.is_empty());
    let config = toml(text).build().unwrap();
    assert_eq!(config.listen.len(), 2);
    assert_eq!(config.unix_socket.unwrap().port, 1);
}

#[test]
fn every_problem_is_reported_at_once_as_its_source_names_it() {
    let variables = [("FOREBAY_GATEWAY_MAX_CLIENT", "1"), ("FOREBAY_GATEWAY_IDLE_TIMEOUT", "soon")];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let said = problems(
        toml("max_clients = 0\nmodus = 'x'\nlisten = ['here']\nmode = ['session']\nmax_message_size = '2GiB'\nmax_clients_per_user = 1.5\nunix_socket_mode = 511\n")
            .environment(variables)
            .flag("auth", "md5")
            .flag("login_timeout", "0s")
            .flag("tls_key_file", "k.pem")
            .file(Path::new("/nonexistent.toml")),
    );
    for expected in [
        "gateway.toml:1: max_clients is \"0\", but must be a whole number from 1 to 4294967295",
        "gateway.toml:2: the key \"modus\" is unknown",
        "gateway.toml:3: listen is \"here\", but must be an address with a port",
        "gateway.toml:4: mode is of the type array, but must be a string",
        "gateway.toml:6: max_clients_per_user is of the type float, but must be a whole number, such as 1000",
        "gateway.toml:7: unix_socket_mode is of the type integer, but must be a string of octal digits, such as \"0770\"",
        "gateway.toml:5: max_message_size is \"2GiB\"",
        "the variable FOREBAY_GATEWAY_MAX_CLIENT is unknown, but must be a known one; did you mean FOREBAY_GATEWAY_MAX_CLIENTS?",
        "FOREBAY_GATEWAY_IDLE_TIMEOUT is \"soon\", but must be a duration",
        "--auth is \"md5\", but must be scram or trust",
        "--login-timeout is 0s, but must be above zero",
        "tls_cert_file is not set, but must be set, as tls_key_file is",
        "/nonexistent.toml is not readable",
    ] {
        assert!(said.contains(expected), "{expected}\n---\n{said}");
    }
}

/// The table of settings says what they mean then.
#[test]
fn two_variables_can_be_empty() {
    let empty = |name: &str| (format!("FOREBAY_GATEWAY_{name}"), String::new());
    let config = |names: &[&str]| {
        let variables = names.iter().map(|name| empty(name));
        toml("listen = ['127.0.0.1:1']\nmode = 'elastic'").environment(variables).build().unwrap()
    };
    let no_port = config(&["LISTEN", "MODE", "NO_SUCH_SETTING"]);
    assert!(no_port.listen.is_empty() && no_port.unix_socket.is_some());
    assert_eq!(no_port.mode, Mode::Elastic);
    assert!(config(&["UNIX_SOCKET_DIR"]).unix_socket.is_none());
}

#[test]
fn a_number_has_an_upper_limit() {
    for (text, expected) in [
        (
            "max_clients = 99999999999999999999",
            "\"99999999999999999999\", but must be a whole number from 1 to 4294967295",
        ),
        ("max_clients = 1e3", "of the type float, but must be a whole number, such as 1000"),
        ("worker_threads = 1025", "\"1025\", but must be a whole number from 1 to 1024"),
    ] {
        let said = problems(toml(text));
        assert!(said.contains(expected), "{said}");
    }
    assert_eq!(toml("worker_threads = 1024").build().unwrap().worker_threads, 1_024);
}

/// Who reads more can do so with what is right.
#[test]
fn a_draft_tells_what_is_known() {
    let draft = toml("auth = 'md5'\nmax_clients = 0\nusers_file = 'u'").flag("mode", "x").draft();
    assert_eq!(draft.problems.len(), 3);
    assert!(draft.is_known("users_file") && !draft.is_known("auth"));
    assert_eq!(draft.name_of("mode"), "--mode");
    assert!(!toml("max_clients = ").draft().is_known("users_file"));
    assert!(!ConfigBuilder::default().file(Path::new("/nonexistent")).draft().is_known("users_file"));
}

#[test]
fn peers_are_complete_and_each_is_there_once() {
    let text =
        "peer_id = 1\npeer_listen = '127.0.0.1:6433'\npeers = ['1=127.0.0.1:6433', '2=b.internal:6433']\n";
    let peers = toml(text).build().unwrap().peers.unwrap();
    assert_eq!((peers.id, peers.listen.port()), (1, 6433));
    assert_eq!(peers.addresses, BTreeMap::from([(2, "b.internal:6433".to_owned())]));
    assert!(toml("peer_id = 1\npeer_listen = '127.0.0.1:6433'").build().is_ok());
    let said = problems(toml("peers = ['2=a:1', '2=b:1']"));
    for expected in [
        "peer_id is not set, but must be set, as peers is",
        "peer_listen is not set, but must be set, as peers is",
        "peers is 2 twice, but must be a list that has each number once",
    ] {
        assert!(said.contains(expected), "{expected}\n---\n{said}");
    }
    let said = problems(toml("peer_id = 256\npeer_listen = '127.0.0.1:6432'\npeers = ['b']"));
    for expected in [
        "peer_id is \"256\", but must be a number from 1 to 255",
        "peer_listen is 127.0.0.1:6432, but must be another address than those of listen",
        "peers is \"b\", but must be a number from 1 to 255 with a host and a port",
    ] {
        assert!(said.contains(expected), "{expected}\n---\n{said}");
    }
    assert!(!said.contains("not set"), "{said}");
    assert!(problems(toml("peer_id = 1")).contains("peer_listen is not set, but must be set, as peer_id is"));
    assert!(
        problems(toml("peer_listen = '[::1]:1'"))
            .contains("peer_id is not set, but must be set, as peer_listen is")
    );
}

#[test]
fn what_other_machines_can_reach_is_protected() {
    let said = problems(toml("listen = '0.0.0.0:6432'"));
    assert!(said.contains("tls_cert_file is not set") && said.contains("tls_required = false"), "{said}");
    assert!(toml("listen = '0.0.0.0:6432'\ntls_required = false").build().is_ok());
    let said = problems(toml("listen = '0.0.0.0:6432'\ntls_required = false\nauth = 'trust'"));
    assert!(said.contains("listen is 0.0.0.0:6432, but must be of loopback addresses only"), "{said}");
    let config = toml("auth = 'trust'").build().unwrap();
    assert_eq!(config.unix_socket.unwrap().mode, 0o700);
    assert!(problems(toml("listen = []\nunix_socket_dir = ''")).contains("listen is empty"));
}

#[test]
fn no_two_listeners_are_in_each_others_way() {
    let said = problems(toml(
        "listen = ['127.0.0.1:1', '0.0.0.0:1', '127.0.0.1:2', '127.0.0.1:2']\ntls_required = false\nmetrics_listen = '0.0.0.0:2'\n",
    ));
    for expected in [
        "listen is 0.0.0.0:1, but must be left out, as clients of 127.0.0.1:1 come there, too",
        "listen is 127.0.0.1:2, but must be there once",
        "metrics_listen is 0.0.0.0:2, but must be another address than those of listen",
    ] {
        assert!(said.contains(expected), "{expected}\n---\n{said}");
    }
    let both =
        toml("listen = ['[::]:7201', '0.0.0.0:7201', '127.0.0.1:0', '127.0.0.1:0']\ntls_required = false");
    assert_eq!(both.build().unwrap().listen.len(), 4);
    let said = problems(toml("metrics_listen = '127.0.0.1:6432'"));
    assert!(said.contains("metrics_listen is 127.0.0.1:6432, but must be another address"), "{said}");
}
