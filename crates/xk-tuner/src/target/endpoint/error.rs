//! Why a text is not the address of an endpoint, and why an endpoint gave no answer.

use std::io;
use std::time::Duration;

use xk_http::HttpError;

use super::MOST;
use crate::modules::ModuleError;

/// Why a text is not the address of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It is not the URL of a host.
    #[error("`{0}` is not the address of an endpoint: write http://HOST:PORT/PATH, or https://HOST:PORT/PATH")]
    NotHttp(String),
    /// It has characters that a URL cannot have, or that name a user or a fragment.
    #[error("`{0}` has characters that an address cannot have: write http://HOST:PORT/PATH")]
    Characters(String),
    /// There is no host.
    #[error("`{0}` names no host: write http://HOST:PORT/PATH")]
    NoHost(String),
    /// Neither a path nor a host with a port.
    #[error("`{0}` is neither the path of a socket nor HOST:PORT")]
    Socket(String),
}

/// Why an endpoint gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// There is no connection, or it broke.
    #[error("does not answer: {0}")]
    Connection(#[from] io::Error),
    /// The name of its host has no address.
    #[error("does not answer: no name server knows an address of its host")]
    NoAddress,
    /// A query by HTTP failed.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The module does not describe it.
    #[error("does not answer: {0}")]
    Module(#[from] ModuleError),
    /// It is too long.
    #[error("gave an answer that is longer than {} MiB", MOST >> 20)]
    TooLong,
    /// It is not UTF-8.
    #[error("gave an answer that is not text")]
    NotText,
    /// The deadline has passed.
    #[error("has not answered in full within {:.1} s", .0.as_secs_f64())]
    Late(Duration),
    /// A function is not queried.
    #[error("is observed, not queried")]
    Observed,
    /// The query ended without a result.
    #[error("could not be queried")]
    Ended,
}

impl EndpointError {
    /// Whether it took too long.
    pub(super) fn is_late(&self) -> bool {
        match self {
            Self::Late(_) => true,
            Self::Http(error) => error.is_late(),
            Self::Connection(error) => matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock),
            _ => false,
        }
    }
}
