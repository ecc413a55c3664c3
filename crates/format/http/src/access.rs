//! Access control.

/// The values that the `Host` header may have. A page of somebody else whose host name resolves to
/// this machine (DNS rebinding) sends another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// `localhost`, and numeric addresses of this machine's loopback, with any port.
    Loopback,
    /// One of these, with any port.
    Named(Vec<String>),
    /// Any host: access is controlled elsewhere.
    Any,
}

impl Hosts {
    /// True if a request may name this host in its `Host` header.
    pub fn allow(&self, host: &str) -> bool {
        // In `[::1]:80`, the colons in the brackets are not before a port.
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        match self {
            Hosts::Loopback => {
                let number = name.trim_start_matches('[').trim_end_matches(']');
                let is_loopback = number.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
                is_loopback || name.eq_ignore_ascii_case("localhost")
            }
            Hosts::Any => true,
            Hosts::Named(names) => names.iter().any(|other| other.eq_ignore_ascii_case(name)),
        }
    }
}

/// Returns the part of a path that is below another: empty, or from a slash on. Takes the same time
/// whatever the difference, so that the time does not reveal a secret path piece by piece.
pub fn strip_base<'a>(base: &str, path: &'a str) -> Option<&'a str> {
    let (start, rest) = path.split_at_checked(base.len())?;
    let different = start.bytes().zip(base.bytes()).fold(0, |different, (a, b)| different | (a ^ b));
    (different == 0 && (rest.is_empty() || rest.starts_with('/'))).then_some(rest)
}

/// Returns 128 random bits as 32 hexadecimal digits, which make a path a secret.
///
/// # Errors
///
/// An error if the system has no random numbers.
#[cfg(feature = "sockets")]
pub fn random_token() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_those_that_are_named() {
        for own in ["localhost", "LOCALHOST:80", "127.0.0.1", "127.1.2.3:9", "[::1]:80", "[::1]"] {
            assert!(Hosts::Loopback.allow(own), "{own}");
        }
        for other in ["", "example.org", "localhost.example.org", "10.0.0.1", "[::2]:80", "127.0.0.1.example.org"] {
            assert!(!Hosts::Loopback.allow(other) && Hosts::Any.allow(other), "{other}");
        }
        assert!(Hosts::Named(vec!["a".into()]).allow("A:7") && !Hosts::Named(vec!["a".into()]).allow("b"));
    }

    #[test]
    fn the_rest_begins_with_a_slash() {
        assert_eq!(strip_base("/a", "/a/b"), Some("/b"));
        assert_eq!((strip_base("/a", "/a"), strip_base("", "/b")), (Some(""), Some("/b")));
        assert_eq!(
            [strip_base("/a", "/ab"), strip_base("/a", "/b/a"), strip_base("/a", ""), strip_base("/é", "/ee")],
            [None; 4]
        );
    }
}
