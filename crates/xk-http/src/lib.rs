//! Gets files and answers by HTTP and HTTPS (`ureq`, `rustls`).
//!
//! In: a URL, and limits of time and size. Out: the body of the answer. It refuses answers other than 200, compressed and
//! long ones. It follows redirections, and uses no proxy. Each query has a connection of its own, so that no query fails
//! because the other side closed an idle one.

mod error;

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ureq::http::{header, StatusCode};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, Error};

pub use error::HttpError;
pub use ureq::http::Uri;

/// What is asked for, and the limits of the answer.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// The kinds of content that are accepted (`Accept`).
    pub accept: &'static str,
    /// The time for connection, request and answer together.
    pub time: Duration,
    /// The largest number of bytes.
    pub bytes: u64,
}

/// The client, and why trusted certificates could not be read.
struct Client {
    agent: Agent,
    unread: Vec<String>,
}

impl Client {
    /// The client of this process. It reads the trusted certificates once.
    fn get() -> &'static Self {
        static CLIENT: OnceLock<Client> = OnceLock::new();
        CLIENT.get_or_init(|| {
            let found = rustls_native_certs::load_native_certs();
            let trusted: Vec<_> = found.certs.iter().map(|one| Certificate::from_der(one).to_owned()).collect();
            let tls = TlsConfig::builder()
                .provider(TlsProvider::Rustls)
                .root_certs(RootCerts::Specific(Arc::new(trusted)))
                .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .build();
            let agent = Agent::config_builder()
                .tls_config(tls)
                .http_status_as_error(false)
                .max_idle_connections(0)
                .proxy(None)
                .user_agent("xk")
                .build()
                .new_agent();
            Client { agent, unread: found.errors.iter().map(ToString::to_string).collect() }
        })
    }

    /// An error before the body.
    fn error(&self, error: Error) -> HttpError {
        match error {
            Error::Timeout(_) => HttpError::Connection(io::ErrorKind::TimedOut.into()),
            Error::HostNotFound => HttpError::NoAddress,
            Error::Rustls(error) => self.certificate(error),
            Error::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => HttpError::NoAnswer,
            Error::Io(error) => match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                Some(inner) => self.certificate(inner.clone()),
                None => HttpError::Connection(error),
            },
            other => HttpError::Protocol(other),
        }
    }

    fn certificate(&self, error: rustls::Error) -> HttpError {
        match error {
            rustls::Error::InvalidCertificate(_) => HttpError::Certificate { error, unread: self.unread.clone() },
            other => HttpError::Connection(io::Error::other(other)),
        }
    }

    /// An error in the body.
    fn body_error(&self, error: Error, most: u64) -> HttpError {
        match error {
            Error::BodyExceedsLimit(_) => HttpError::TooLong(most),
            Error::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => HttpError::CutOff,
            other => self.error(other),
        }
    }
}

/// The body of the answer.
///
/// # Errors
/// [`HttpError`].
pub fn get(url: &str, wanted: Wanted) -> Result<Vec<u8>, HttpError> {
    let client = Client::get();
    let request = client.agent.get(url).header(header::CONNECTION, "close").header(header::ACCEPT, wanted.accept);
    // The time holds for all parts of the query together.
    let sent = request.config().timeout_global(Some(wanted.time)).build().call();
    let mut answer = sent.map_err(|error| client.error(error))?;
    if answer.status() != StatusCode::OK {
        return Err(HttpError::Status(answer.status()));
    }
    // A compressed answer costs the machine time, and its size says little. So none is requested.
    if let Some(encoding) = answer.headers().get(header::CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        return Err(HttpError::Encoded(String::from_utf8_lossy(encoding.as_bytes()).into_owned()));
    }
    let body = answer.body_mut().with_config().limit(wanted.bytes).read_to_vec();
    body.map_err(|error| client.body_error(error, wanted.bytes))
}
