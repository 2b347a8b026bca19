//! Queries a running program for its numbers: by HTTP, as far as Prometheus endpoints need it, or by a plain socket.
//!
//! In: an address, and a deadline. Out: the text of the answer. It refuses answers that are late, incomplete, too long or not
//! successful, encryption and redirections.
//!
//! The request is HTTP/1.0: such an answer ends with the connection, and has no chunks. The exchange runs in a thread,
//! because it may wait for a name server longer than the tuner does.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::{TargetError, Watch, TICK};
use crate::modules::{Kernel, Modules};

/// The largest size of an answer.
const MOST: u64 = 16 << 20;

/// What is queried.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Endpoint {
    /// By HTTP GET.
    Http {
        /// `HOST:PORT`.
        authority: String,
        /// From `/` on.
        path: String,
    },
    /// A TCP connection: the program sends its numbers without a request.
    Tcp(String),
    /// The same, by the path of a Unix socket.
    Unix(PathBuf),
    /// The meter `MODULE:NAME` of a loaded module.
    Module(String),
    /// Calls of a kernel function. It is observed during the window, and not queried.
    Function(String),
}

/// Why a text is not the address of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Encryption is not supported.
    #[error(
        "`{0}` would be encrypted, which is not supported: use http://HOST:PORT/PATH on this machine, or a local proxy"
    )]
    Encrypted(String),
    /// It does not begin with `http://`.
    #[error("`{0}` is not the address of an endpoint: write http://HOST:PORT/PATH")]
    NotHttp(String),
    /// It has characters that would end the request line, or that name a user or a fragment.
    #[error("`{0}` has characters that an address cannot have: write http://HOST:PORT/PATH")]
    Characters(String),
    /// There is no host.
    #[error("`{0}` names no host: write http://HOST:PORT/PATH")]
    NoHost(String),
    /// Neither a path nor a host with a port.
    #[error("`{0}` is neither the path of a socket nor HOST:PORT")]
    Socket(String),
}

impl Endpoint {
    /// From `http://HOST[:PORT][/PATH]`.
    ///
    /// # Errors
    /// [`AddressError`].
    pub fn http(url: &str) -> Result<Self, AddressError> {
        let wrong = |why: fn(String) -> AddressError| Err(why(url.to_owned()));
        if url.starts_with("https:") {
            return wrong(AddressError::Encrypted);
        }
        let Some(rest) = url.strip_prefix("http://") else { return wrong(AddressError::NotHttp) };
        // Others could end the request line, or the header.
        if !rest.chars().all(|c| c.is_ascii_graphic()) || rest.contains(['@', '#']) {
            return wrong(AddressError::Characters);
        }
        let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
        let authority = match has_port(authority) {
            _ if authority.is_empty() => return wrong(AddressError::NoHost),
            true => authority.to_owned(),
            false => format!("{authority}:80"),
        };
        Ok(Self::Http { authority, path: path.to_owned() })
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
        let failed = |why: String| TargetError::Endpoint(format!("{self} {why}"));
        let start = Instant::now();
        let (sender, answer) = mpsc::channel();
        let endpoint = self.clone();
        thread::spawn(move || {
            let _ = sender.send(endpoint.exchange(deadline));
        });
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match answer.recv_timeout(TICK.min(left)) {
                Ok(Ok(text)) => return Ok(text),
                Ok(Err(error)) if is_late(&error) => break,
                Ok(Err(error)) => return Err(failed(format!("does not answer: {error}"))),
                Err(RecvTimeoutError::Disconnected) => return Err(failed("could not be queried".into())),
                Err(RecvTimeoutError::Timeout) if watch.interrupted() => return Err(TargetError::Interrupted),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        Err(failed(format!("has not answered in full within {:.1} s", start.elapsed().as_secs_f64())))
    }

    fn exchange(&self, deadline: Instant) -> io::Result<String> {
        match self {
            Self::Http { authority, path } => {
                let mut stream = connect(authority, deadline)?;
                stream.set_write_timeout(Some(left(deadline)?))?;
                // In one piece: some servers read only once.
                let request = format!(
                    "GET {path} HTTP/1.0\r\nHost: {authority}\r\nUser-Agent: xk\r\nAccept: \
                     text/plain;version=0.0.4\r\n\r\n"
                );
                stream.write_all(request.as_bytes())?;
                let set = |stream: &TcpStream, left| stream.set_read_timeout(Some(left));
                body(&read(stream, deadline, set, |_| false)?)
            }
            Self::Tcp(address) => {
                let set = |stream: &TcpStream, left| stream.set_read_timeout(Some(left));
                text(read(connect(address, deadline)?, deadline, set, has_number)?)
            }
            Self::Unix(path) => {
                let set = |stream: &UnixStream, left| stream.set_read_timeout(Some(left));
                text(read(UnixStream::connect(path)?, deadline, set, has_number)?)
            }
            Self::Function(_) => Err(io::Error::other("it is observed, not queried")),
            Self::Module(place) => {
                let described = Kernel.look().map_err(io::Error::other)?;
                let meter = described.meter(place).map_err(io::Error::other)?;
                meter.reading.map(|(number, _)| number.to_string()).map_err(io::Error::from_raw_os_error)
            }
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { authority, path } => write!(f, "http://{authority}{path}"),
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => path.display().fmt(f),
            Self::Module(place) => write!(f, "module {place}"),
            Self::Function(name) => write!(f, "{name}()"),
        }
    }
}

/// Whether an address ends in a port. An IPv6 address is in brackets.
fn has_port(authority: &str) -> bool {
    let port = authority.rsplit(']').next().and_then(|tail| tail.rsplit_once(':'));
    port.is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(io::ErrorKind::TimedOut.into())
    } else {
        Ok(left)
    }
}

fn connect(authority: &str, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for address in authority.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(deadline)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Reads until the other side closes the connection, or `enough`.
fn read<S: Read>(
    mut stream: S,
    deadline: Instant,
    set: impl Fn(&S, Duration) -> io::Result<()>,
    enough: impl Fn(&[u8]) -> bool,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut part = [0; 8192];
    loop {
        // The deadline holds for all parts together.
        set(&stream, left(deadline)?)?;
        let length = match stream.read(&mut part) {
            Ok(0) => return Ok(bytes),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        bytes.extend_from_slice(&part[..length]);
        if bytes.len() as u64 > MOST {
            return Err(io::Error::other(format!("its answer is longer than {} MiB", MOST >> 20)));
        }
        if enough(&bytes) {
            return Ok(bytes);
        }
    }
}

/// Whether a program has sent its number: a whole line that is not `NAME = NUMBER`. It may leave the connection open.
fn has_number(bytes: &[u8]) -> bool {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(&[][..], |end| &bytes[..end]);
    whole.split(|byte| *byte == b'\n').any(|line| !line.trim_ascii().is_empty() && !line.contains(&b'='))
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::other("its answer is not text"))
}

/// The body of an answer by HTTP.
fn body(answer: &[u8]) -> io::Result<String> {
    let bad = |why: String| Err(io::Error::other(why));
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
        return bad("its answer is not HTTP".into());
    };
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    let (version, status) = status.split_once(' ').unwrap_or((status, ""));
    if !version.starts_with("HTTP/1.") {
        return bad("its answer is not HTTP".into());
    }
    if status.split(' ').next() != Some("200") {
        return bad(format!("its answer is `{status}`, and not 200"));
    }
    let header = |name: &str| {
        let of = |line: &str| {
            line.split_once(':').map(|(key, value)| (key.trim().to_ascii_lowercase(), value.trim().to_owned()))
        };
        head.lines().skip(1).filter_map(of).find_map(|(key, value)| (key == name).then_some(value))
    };
    if let Some(encoding) = header("transfer-encoding").or_else(|| header("content-encoding")) {
        if encoding != "identity" {
            return bad(format!("it answers {encoding}, although plain text was requested"));
        }
    }
    let mut body = &answer[end + 4..];
    if let Some(length) = header("content-length") {
        let Ok(length) = length.parse::<usize>() else { return bad(format!("its length is `{length}`")) };
        match body.get(..length) {
            Some(whole) => body = whole,
            None => return bad(format!("its answer was cut off after {} of {length} bytes", body.len())),
        }
    }
    text(body.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_or_refused() {
        let http = |authority: &str, path: &str| Endpoint::Http { authority: authority.into(), path: path.into() };
        assert_eq!(Endpoint::http("http://localhost:9090/metrics?a=b"), Ok(http("localhost:9090", "/metrics?a=b")));
        assert_eq!(Endpoint::http("http://[::1]"), Ok(http("[::1]:80", "/")));
        assert_eq!(Endpoint::http("http://host/x"), Ok(http("host:80", "/x")));
        for (url, word) in [
            ("https://host/", "encrypted"),
            ("host:9090", "not the address"),
            ("http://", "no host"),
            ("http:///metrics", "no host"),
            ("http://host/a b", "characters"),
            ("http://host/\r\nX: y", "characters"),
            ("http://user@host/", "characters"),
        ] {
            assert!(Endpoint::http(url).unwrap_err().to_string().contains(word), "{url}");
        }
        assert_eq!(Endpoint::socket("/run/app"), Ok(Endpoint::Unix("/run/app".into())));
        assert_eq!(Endpoint::socket("[::1]:7"), Ok(Endpoint::Tcp("[::1]:7".into())));
        assert!(Endpoint::socket("app").is_err() && Endpoint::socket("host:70000").is_err());
    }

    #[test]
    fn only_whole_answers_of_success_count() {
        let parsed = |answer: &str| body(answer.as_bytes()).map_err(|error| error.to_string());
        assert_eq!(parsed("HTTP/1.0 200 OK\r\nA: b\r\n\r\nx 1\n").as_deref(), Ok("x 1\n"));
        assert_eq!(parsed("HTTP/1.1 200 OK\r\ncontent-LENGTH: 3\r\n\r\nx 1\n").as_deref(), Ok("x 1"));
        for (answer, word) in [
            ("", "not HTTP"),
            ("SSH-2.0-x\r\n\r\n", "not HTTP"),
            ("HTTP/1.1 404 Not Found\r\n\r\nx 1\n", "`404 Not Found`"),
            ("HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", "`302 Found`"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx 1\n", "cut off after 4 of 9"),
            ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx 1\n", "length is `-1`"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nx 1\n", "answers chunked"),
        ] {
            assert!(parsed(answer).unwrap_err().contains(word), "{answer}");
        }
    }

    #[test]
    fn an_answer_is_complete_when_a_line_is_a_number() {
        for (sent, enough) in [("", false), ("5", false), ("5\n", true), ("p99 = 4\n", false), ("\np99 = 4\n5\n", true)]
        {
            assert_eq!(has_number(sent.as_bytes()), enough, "{sent:?}");
        }
    }
}
