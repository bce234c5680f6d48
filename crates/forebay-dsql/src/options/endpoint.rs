//! Splits and checks the name of a cluster.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// A host in lower case, and its port if it carries one. A scheme and a path, which people often paste too, are dropped.
pub(super) fn split(endpoint: &str) -> (String, Option<String>) {
    let endpoint = endpoint.trim();
    let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    let rest = rest.split('/').next().unwrap_or(rest);
    let (host, port) = match rest.split_once(':') {
        Some((host, port)) => (host, Some(port.to_owned())),
        None => (rest, None),
    };
    (host.trim_end_matches('.').to_ascii_lowercase(), port)
}

/// Whether it is a valid host name: TLS and the signature need one.
pub(super) fn is_name(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_address = host.parse::<std::net::IpAddr>().is_ok();
    (1..=253).contains(&host.len()) && !is_address && host.split('.').all(label)
}

/// The region of `{id}.dsql.{region}.on.aws` and of the private `{id}.dsql-xxxx.{region}.on.aws`.
pub(super) fn region(host: &str) -> Option<&str> {
    let labels: Vec<&str> = host.split('.').collect();
    match labels[..] {
        [_, service, region, "on", "aws"] if service == "dsql" || service.starts_with("dsql-") => {
            Some(region)
        }
        _ => None,
    }
}

/// Whether it holds at least one certificate, and none that is broken.
pub(super) fn holds_certificates(pem: &[u8]) -> bool {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    certificates.is_ok_and(|certificates| !certificates.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_read_from_public_and_private_names() {
        for (host, expected) in [
            ("abc.dsql.us-east-1.on.aws", Some("us-east-1")),
            ("abc.dsql-fnh4.eu-west-2.on.aws", Some("eu-west-2")),
            ("abc.dsqlx.eu-west-2.on.aws", None),
            ("abc.rds.us-east-1.on.aws", None),
            ("dsql.us-east-1.on.aws", None),
            ("a.b.dsql.us-east-1.on.aws", None),
            ("localhost", None),
            ("", None),
        ] {
            assert_eq!(region(host), expected, "{host}");
        }
    }

    #[test]
    fn hosts_come_as_people_paste_them() {
        for (given, host, port) in [
            ("ABC.dsql.us-east-1.on.aws", "abc.dsql.us-east-1.on.aws", None),
            (" h.example:5433 ", "h.example", Some("5433")),
            ("https://h.example/", "h.example", None),
            ("h.example.", "h.example", None),
        ] {
            assert_eq!(split(given), (host.to_owned(), port.map(str::to_owned)), "{given}");
        }
    }

    #[test]
    fn names_are_names() {
        for host in ["localhost", "abc.dsql.us-east-1.on.aws", "my_host"] {
            assert!(is_name(host), "{host}");
        }
        let long = "a".repeat(64);
        for host in ["", ".", "a..b", "-a", "a b", "127.0.0.1", "a/b", "a@b", "é", long.as_str()] {
            assert!(!is_name(host), "{host}");
        }
    }
}
