//! Queries an endpoint by HTTP or HTTPS (`ureq`, `rustls`).
//!
//! In: a URL, and the time that is left. Out: the body of the answer. It refuses answers other than 200, compressed and
//! long ones. It follows redirections, and uses no proxy. Each query has a connection of its own, so that no query fails
//! because the other side closed an idle one.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ureq::http::{header, StatusCode};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, Error};

use super::error::EndpointError;
use super::MOST;

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
                .accept("text/plain;version=0.0.4")
                .build()
                .new_agent();
            Client { agent, unread: found.errors.iter().map(ToString::to_string).collect() }
        })
    }

    /// An error before the body.
    fn error(&self, error: Error) -> EndpointError {
        match error {
            Error::Timeout(_) => EndpointError::Connection(io::ErrorKind::TimedOut.into()),
            Error::HostNotFound => EndpointError::NoAddress,
            Error::Rustls(error) => self.certificate(error),
            Error::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => EndpointError::NoAnswer,
            Error::Io(error) => match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                Some(inner) => self.certificate(inner.clone()),
                None => EndpointError::Connection(error),
            },
            other => EndpointError::Protocol(other),
        }
    }

    fn certificate(&self, error: rustls::Error) -> EndpointError {
        match error {
            rustls::Error::InvalidCertificate(_) => EndpointError::Certificate { error, unread: self.unread.clone() },
            other => EndpointError::Connection(io::Error::other(other)),
        }
    }

    /// An error in the body.
    fn body_error(&self, error: Error) -> EndpointError {
        match error {
            Error::BodyExceedsLimit(_) => EndpointError::TooLong,
            Error::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => EndpointError::CutOff,
            other => self.error(other),
        }
    }
}

/// The body of the answer.
pub(super) fn get(url: &str, left: Duration) -> Result<String, EndpointError> {
    let client = Client::get();
    let request = client.agent.get(url).header(header::CONNECTION, "close");
    // The time holds for all parts of the query together.
    let sent = request.config().timeout_global(Some(left)).build().call();
    let mut answer = sent.map_err(|error| client.error(error))?;
    if answer.status() != StatusCode::OK {
        return Err(EndpointError::Status(answer.status()));
    }
    // A compressed answer costs the measured machine time, so none is requested.
    if let Some(encoding) = answer.headers().get(header::CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        return Err(EndpointError::Encoded(String::from_utf8_lossy(encoding.as_bytes()).into_owned()));
    }
    let body = answer.body_mut().with_config().limit(MOST).read_to_vec();
    let body = body.map_err(|error| client.body_error(error))?;
    String::from_utf8(body).map_err(|_| EndpointError::NotText)
}
