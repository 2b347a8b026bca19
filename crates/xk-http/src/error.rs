//! Why there is no answer.

use std::io;

use ureq::http::StatusCode;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// There is no connection, or it broke.
    #[error("does not answer: {0}")]
    Connection(#[from] io::Error),
    /// The name of its host has no address.
    #[error("does not answer: no name server knows an address of its host")]
    NoAddress,
    /// Its certificate is not valid.
    #[error(
        "does not answer: {error}; trusted are the authorities of this system, or, if SSL_CERT_FILE names a file, those \
         in it{}", also(unread)
    )]
    Certificate {
        /// What is wrong with it.
        error: rustls::Error,
        /// Why trusted certificates could not be read.
        unread: Vec<String>,
    },
    /// It closed the connection first.
    #[error("closed the connection without an answer")]
    NoAnswer,
    /// The answer does not follow the protocol, or redirects too often.
    #[error("gave an answer that is not HTTP: {0}")]
    Protocol(#[source] ureq::Error),
    /// It is another answer than the wanted one.
    #[error("gave the answer `{0}`, and not 200")]
    Status(StatusCode),
    /// It is compressed.
    #[error("gave an answer in {0}, although no compression was requested")]
    Encoded(String),
    /// It ended too early.
    #[error("gave an answer that was cut off")]
    CutOff,
    /// It is longer than this number of bytes.
    #[error("gave an answer that is longer than {}", size(*.0))]
    TooLong(u64),
}

impl HttpError {
    /// Whether it took too long.
    #[must_use]
    pub fn is_late(&self) -> bool {
        match self {
            Self::Connection(error) => matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock),
            _ => false,
        }
    }
}

fn also(unread: &[String]) -> String {
    if unread.is_empty() {
        String::new()
    } else {
        format!(" ({})", unread.join("; "))
    }
}

/// A size for people.
fn size(bytes: u64) -> String {
    match bytes >> 20 {
        mebibytes if mebibytes << 20 == bytes && bytes > 0 => format!("{mebibytes} MiB"),
        _ => format!("{bytes} bytes"),
    }
}
