//! Addresses of servers.

/// The parts of an address `http://HOST[:PORT][TARGET]`. The characters in them are not checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl {
    /// Host and port, for the header `Host`.
    pub authority: String,
    /// The host to connect to, without the brackets of an IPv6 address.
    pub host: String,
    /// The port to connect to.
    pub port: u16,
    /// The rest, from its first slash on: empty, or path and query.
    pub target: String,
}

/// The reason why a text is not such an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpUrlError {
    /// It does not begin with `http://`.
    NotHttp,
    /// The port is not a number up to 65535.
    Port,
    /// There is no host.
    NoHost,
}

impl HttpUrl {
    /// Splits an address.
    ///
    /// # Errors
    ///
    /// See [`HttpUrlError`].
    pub fn parse(text: &str) -> Result<HttpUrl, HttpUrlError> {
        let rest = text.strip_prefix("http://").ok_or(HttpUrlError::NotHttp)?;
        let (authority, target) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // In `[::1]:80`, the colons in the brackets are not before a port.
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| HttpUrlError::Port)?),
            _ => (authority, 80),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(HttpUrlError::NoHost);
        }
        Ok(HttpUrl { authority: authority.into(), host: host.into(), port, target: target.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_maybe_a_port_and_a_target() {
        let url = |authority: &str, host: &str, port, target: &str| {
            Ok(HttpUrl { authority: authority.into(), host: host.into(), port, target: target.into() })
        };
        assert_eq!(HttpUrl::parse("http://a"), url("a", "a", 80, ""));
        assert_eq!(HttpUrl::parse("http://a:4040/b/?c"), url("a:4040", "a", 4040, "/b/?c"));
        assert_eq!(HttpUrl::parse("http://[::1]:4318"), url("[::1]:4318", "::1", 4318, ""));
        assert_eq!(HttpUrl::parse("http://[::1]/x"), url("[::1]", "::1", 80, "/x"));
        assert_eq!(HttpUrl::parse("https://a"), Err(HttpUrlError::NotHttp));
        assert_eq!(HttpUrl::parse("http://a:b"), Err(HttpUrlError::Port));
        assert_eq!(HttpUrl::parse("http:///b"), Err(HttpUrlError::NoHost));
    }
}
