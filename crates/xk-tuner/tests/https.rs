//! HTTPS endpoints: a server whose certificate an authority of the test has signed.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use xk_tuner::history::Goal;
use xk_tuner::target::{Endpoint, Lead, Probe, Quantity, Selector, TargetError, Watch, Work};
use xk_tuner::Target;

struct Nobody;

impl Watch for Nobody {
    fn running(&mut self, _: Option<i32>) {}

    fn interrupted(&self) -> bool {
        false
    }
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new([]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A server with a certificate of this authority for `host`.
fn serve(authority: &CertifiedIssuer<'static, KeyPair>, host: &str) -> SocketAddr {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new([host.to_owned()]).unwrap().signed_by(&key, authority).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
            // A client that does not trust the certificate ends the handshake.
            if stream.read(&mut [0; 4096]).is_ok() {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nwork 5\n").unwrap();
            }
        }
    });
    address
}

fn value(url: &str) -> Result<f64, TargetError> {
    let probe = Probe {
        name: "work".into(),
        endpoint: Endpoint::http(url).unwrap(),
        metric: Some(Selector::parse("work").unwrap()),
        quantity: Quantity::Number,
    };
    let target = Target {
        work: Work::Time(Duration::from_millis(10)),
        lead: Lead::Named("work".into()),
        name: "work".into(),
        goal: Goal::Maximise,
        others: vec![],
        probes: vec![probe],
        timeout: Duration::from_secs(30),
    };
    target.run(target.timeout, &[], &mut Nobody).map(|reading| reading.value)
}

/// One test, because the trusted authorities are read once in a process.
#[test]
fn a_certificate_is_valid_if_a_trusted_authority_has_signed_it_for_this_host() {
    let (trusted, other) = (authority("trusted"), authority("other"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("authority.pem");
    std::fs::write(&file, trusted.pem()).unwrap();
    std::env::set_var("SSL_CERT_FILE", &file);
    let good = serve(&trusted, "127.0.0.1");
    assert_eq!(value(&format!("https://{good}/metrics")).unwrap(), 5.0);
    for (address, words) in
        [(serve(&other, "127.0.0.1"), "UnknownIssuer"), (serve(&trusted, "example.org"), "not valid for name")]
    {
        let told = value(&format!("https://{address}/")).unwrap_err().to_string();
        assert!(told.contains(words) && told.contains("SSL_CERT_FILE"), "{told}");
    }
    // Plain HTTP from a server that expects a handshake is no answer.
    let told = value(&format!("http://{good}/")).unwrap_err().to_string();
    assert!(told.contains(&format!("http://{good}/")), "{told}");
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let told = value(&format!("https://{free}/")).unwrap_err().to_string();
    assert!(told.contains("does not answer: Connection refused"), "{told}");
}
