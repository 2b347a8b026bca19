//! Reads what a program sends through a plain socket.
//!
//! In: a connection, and a deadline. Out: the text until the other side closes the connection, or has sent its number. It
//! refuses texts that are late or too long.

use std::io::{self, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::error::EndpointError;
use super::{left, MOST};

/// Connects to `HOST:PORT`.
pub(super) fn connect(authority: &str, deadline: Instant) -> Result<TcpStream, EndpointError> {
    let mut last = EndpointError::NoAddress;
    for address in authority.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(deadline)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

/// Reads the text. `set` limits the time of the next read.
pub(super) fn read<S: Read>(
    mut stream: S,
    deadline: Instant,
    set: impl Fn(&S, Duration) -> io::Result<()>,
) -> Result<String, EndpointError> {
    let mut bytes = Vec::new();
    let mut part = [0; 8192];
    // The deadline holds for all parts together.
    while !has_number(&bytes) {
        set(&stream, left(deadline)?)?;
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(length) => bytes.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
        if bytes.len() as u64 > MOST {
            return Err(EndpointError::TooLong);
        }
    }
    String::from_utf8(bytes).map_err(|_| EndpointError::NotText)
}

/// Whether a program has sent its number: a whole line that is not `NAME = NUMBER`. It may leave the connection open.
fn has_number(bytes: &[u8]) -> bool {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(&[][..], |end| &bytes[..end]);
    whole.split(|byte| *byte == b'\n').any(|line| !line.trim_ascii().is_empty() && !line.contains(&b'='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_complete_when_a_line_is_a_number() {
        for (sent, enough) in [("", false), ("5", false), ("5\n", true), ("p99 = 4\n", false), ("\np99 = 4\n5\n", true)]
        {
            assert_eq!(has_number(sent.as_bytes()), enough, "{sent:?}");
        }
    }
}
