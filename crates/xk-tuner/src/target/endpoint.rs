//! Queries a running program for its numbers: by HTTP or HTTPS, or by a plain socket.
//!
//! In: an address, and a deadline. Out: the text of the answer. It refuses answers that are late, incomplete, too long or
//! not successful. The query runs in a thread, because it may wait for a name server or the other side longer than the
//! tuner does.

mod error;
mod socket;

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use xk_http::{Uri, Wanted};

use super::{TargetError, Watch, TICK};
use crate::modules::{Kernel, Modules};

pub use error::{AddressError, EndpointError};

/// The largest size of an answer.
const MOST: u64 = 16 << 20;

/// What is queried.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Endpoint {
    /// By GET: the URL, with its port and its path.
    Http(String),
    /// A TCP connection: the program sends its numbers without a request.
    Tcp(String),
    /// The same, by the path of a Unix socket.
    Unix(PathBuf),
    /// The meter `MODULE:NAME` of a loaded module.
    Module(String),
    /// Calls of a kernel function. It is observed during the window, and not queried.
    Function(String),
}

impl Endpoint {
    /// From `http://HOST[:PORT][/PATH]`, or the same with `https`.
    ///
    /// # Errors
    /// [`AddressError`].
    pub fn http(url: &str) -> Result<Self, AddressError> {
        let wrong = |why: fn(String) -> AddressError| why(url.to_owned());
        let (scheme, standard, rest) = match url.split_once("://") {
            Some(("http", rest)) => ("http", 80, rest),
            Some(("https", rest)) => ("https", 443, rest),
            _ => return Err(wrong(AddressError::NotHttp)),
        };
        if rest.is_empty() || rest.starts_with('/') {
            return Err(wrong(AddressError::NoHost));
        }
        // `Uri` drops a fragment, and accepts more than ASCII.
        if rest.contains(['@', '#']) || !rest.is_ascii() {
            return Err(wrong(AddressError::Characters));
        }
        let uri: Uri = url.parse().map_err(|_| wrong(AddressError::Characters))?;
        let host = uri.host().ok_or_else(|| wrong(AddressError::NoHost))?;
        let port = match uri.authority().and_then(|authority| authority.as_str().strip_prefix(host)) {
            Some("") => standard,
            _ => uri.port_u16().ok_or_else(|| wrong(AddressError::NotHttp))?,
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self::Http(format!("{scheme}://{host}:{port}{path}")))
    }

    /// From the path of a socket, or `HOST:PORT`.
    ///
    /// # Errors
    /// [`AddressError::Socket`].
    pub fn socket(address: &str) -> Result<Self, AddressError> {
        match address.starts_with('/') {
            true => Ok(Self::Unix(address.into())),
            false if has_port(address) => Ok(Self::Tcp(address.to_owned())),
            false => Err(AddressError::Socket(address.to_owned())),
        }
    }

    /// Queries it.
    ///
    /// # Errors
    /// [`TargetError::Endpoint`], [`TargetError::Interrupted`].
    pub fn ask(&self, deadline: Instant, watch: &dyn Watch) -> Result<String, TargetError> {
        let failed = |problem| TargetError::Endpoint { endpoint: self.clone(), problem: Box::new(problem) };
        let start = Instant::now();
        let (sender, answer) = mpsc::channel();
        let endpoint = self.clone();
        thread::spawn(move || {
            let _ = sender.send(endpoint.query(deadline));
        });
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match answer.recv_timeout(TICK.min(left)) {
                Ok(Ok(text)) => return Ok(text),
                Ok(Err(error)) if error.is_late() => break,
                Ok(Err(error)) => return Err(failed(error)),
                Err(RecvTimeoutError::Disconnected) => return Err(failed(EndpointError::Ended)),
                Err(RecvTimeoutError::Timeout) if watch.interrupted() => return Err(TargetError::Interrupted),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        Err(failed(EndpointError::Late(start.elapsed())))
    }

    fn query(&self, deadline: Instant) -> Result<String, EndpointError> {
        match self {
            Self::Http(url) => {
                let wanted = Wanted { accept: "text/plain;version=0.0.4", time: left(deadline)?, bytes: MOST };
                String::from_utf8(xk_http::get(url, wanted)?).map_err(|_| EndpointError::NotText)
            }
            Self::Tcp(address) => {
                let set = |stream: &TcpStream, left| stream.set_read_timeout(Some(left));
                socket::read(socket::connect(address, deadline)?, deadline, set)
            }
            Self::Unix(path) => {
                let set = |stream: &UnixStream, left| stream.set_read_timeout(Some(left));
                socket::read(UnixStream::connect(path)?, deadline, set)
            }
            Self::Function(_) => Err(EndpointError::Observed),
            Self::Module(name) => {
                let described = Kernel.look()?;
                let meter = described.meter(name)?;
                let (number, _) = meter.reading.map_err(io::Error::from_raw_os_error)?;
                Ok(number.to_string())
            }
        }
    }
}

/// These words are part of a search's identity (`Target::words`), like those of a probe.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(url) => f.write_str(url),
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => path.display().fmt(f),
            Self::Module(name) => write!(f, "module {name}"),
            Self::Function(name) => write!(f, "{name}()"),
        }
    }
}

/// Whether an address ends in a port. An IPv6 address is in brackets.
fn has_port(authority: &str) -> bool {
    let port = authority.rsplit(']').next().and_then(|tail| tail.rsplit_once(':'));
    port.is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

/// The time until a deadline.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(io::ErrorKind::TimedOut.into())
    } else {
        Ok(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_or_refused() {
        let http = |url: &str| Ok(Endpoint::Http(url.into()));
        assert_eq!(Endpoint::http("http://localhost:9090/metrics?a=b"), http("http://localhost:9090/metrics?a=b"));
        assert_eq!(Endpoint::http("http://[::1]"), http("http://[::1]:80/"));
        assert_eq!(Endpoint::http("http://[::1]:7/x"), http("http://[::1]:7/x"));
        assert_eq!(Endpoint::http("http://host/x"), http("http://host:80/x"));
        assert_eq!(Endpoint::http("https://host/x"), http("https://host:443/x"));
        for (url, word) in [
            ("host:9090", "not the address"),
            ("ftp://host/", "not the address"),
            ("http://host:70000/", "not the address"),
            ("http://host:/", "not the address"),
            ("http://", "no host"),
            ("http:///metrics", "no host"),
            ("http://host/a b", "characters"),
            ("http://host/\r\nX: y", "characters"),
            ("http://host/é", "characters"),
            ("http://host/#part", "characters"),
            ("http://user@host/", "characters"),
        ] {
            assert!(Endpoint::http(url).unwrap_err().to_string().contains(word), "{url}");
        }
        assert_eq!(Endpoint::socket("/run/app"), Ok(Endpoint::Unix("/run/app".into())));
        assert_eq!(Endpoint::socket("[::1]:7"), Ok(Endpoint::Tcp("[::1]:7".into())));
        assert!(Endpoint::socket("app").is_err() && Endpoint::socket("host:70000").is_err());
    }
}
