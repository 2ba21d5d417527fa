//! TLS for `wss://`, by rustls with ring, which needs only a C compiler.

use std::{error::Error, io, path::Path, sync::Arc};

use rustls::{
    CertificateError, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use crate::{error::WireError, socket::Counted};

/// The roots that a client trusts.
#[derive(Clone, derive_more::Debug)]
#[debug("ClientTls(..)")]
pub(crate) struct ClientTls {
    connector: TlsConnector,
    /// The roots that it trusts.
    roots: Arc<[CertificateDer<'static>]>,
    /// The file that the roots are from; `None` for the platform's.
    file: Option<Arc<Path>>,
}

/// A relay's certificate and key. With them it speaks only `wss://`.
#[derive(Clone, derive_more::Debug)]
#[debug("ServerTls(..)")]
pub struct ServerTls(TlsAcceptor);

/// Why certificates or keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file that cannot be read, or is not PEM with the expected content.
    #[error("cannot read {what} from {path}: {why}; expected a PEM file")]
    File {
        /// The expected content.
        what: &'static str,
        /// The file.
        path: String,
        /// The cause.
        why: String,
    },
    /// The platform has no usable roots.
    #[error("the platform has no root certificates: {0}; name a file of them (--ca FILE)")]
    NoRoots(String),
    /// rustls refuses certificates or key.
    #[error("{0}")]
    Refused(#[from] rustls::Error),
}

impl ClientTls {
    /// Trusts the platform's roots; `SSL_CERT_FILE` and `SSL_CERT_DIR` override them.
    ///
    /// # Errors
    /// [`TlsError::NoRoots`].
    pub(crate) fn platform() -> Result<ClientTls, TlsError> {
        let mut found = rustls_native_certs::load_native_certs();
        let mut store = RootCertStore::empty();
        found.certs.retain(|certificate| store.add(certificate.clone()).is_ok());
        if found.certs.is_empty() {
            let why = found.errors.first().map_or_else(|| "none was found".to_owned(), ToString::to_string);
            return Err(TlsError::NoRoots(why));
        }
        ClientTls::trusting(store, found.certs, None)
    }

    /// Trusts only the certificates in a PEM file.
    ///
    /// # Errors
    /// [`TlsError::File`], and [`TlsError::Refused`] for certificates that cannot be roots.
    pub(crate) fn from_file(path: &Path) -> Result<ClientTls, TlsError> {
        let (mut store, roots) = (RootCertStore::empty(), certificates(path)?);
        roots.iter().try_for_each(|certificate| store.add(certificate.clone()))?;
        ClientTls::trusting(store, roots, Some(path.into()))
    }

    /// The roots that are trusted.
    pub(crate) fn roots(&self) -> &[CertificateDer<'static>] {
        &self.roots
    }

    fn trusting(
        store: RootCertStore,
        roots: Vec<CertificateDer<'static>>,
        file: Option<Arc<Path>>,
    ) -> Result<ClientTls, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(store)
            .with_no_client_auth();
        Ok(ClientTls { connector: TlsConnector::from(Arc::new(config)), roots: roots.into(), file })
    }

    /// Begins TLS; `other_scheme` follows a failure that a relay without TLS would explain.
    pub(crate) async fn connect(
        &self,
        host: &str,
        tcp: Counted,
        other_scheme: impl FnOnce() -> String,
    ) -> Result<TlsStream<Counted>, WireError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| WireError::handshake(format!("{host:?} is neither a host name nor an address")))?;
        let stream = self.connector.connect(name, tcp).await;
        let stream = stream.map_err(|error| {
            let remedy = if is_no_tls(&error) { other_scheme() } else { self.remedy(host, &error) };
            WireError::handshake(format!("no TLS with {host}: {error}{remedy}"))
        })?;
        Ok(stream.into())
    }

    /// The remedy for a refused certificate, to follow the reason; empty if the reason has it.
    fn remedy(&self, host: &str, error: &io::Error) -> String {
        match refused_certificate(error) {
            // A bad signature is that of an issuer with the same name and another key.
            Some(CertificateError::UnknownIssuer | CertificateError::BadSignature) => match &self.file {
                Some(file) => format!(
                    "; no certificate in {} (--ca) signed the relay's: name the file of the one that did",
                    file.display()
                ),
                None => "; the platform trusts nobody who signed it: --ca FILE names other roots".to_owned(),
            },
            Some(CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }) => {
                format!("; connect by a name that it has, or make one for {host} (its subjectAltName)")
            }
            Some(CertificateError::Other(other)) => match other.0.downcast_ref() {
                Some(webpki::Error::CaUsedAsEndEntity) => {
                    "; the relay's certificate is that of an authority (CA:TRUE), not of a server: make one with \
                     openssl's -addext basicConstraints=critical,CA:FALSE"
                        .to_owned()
                }
                Some(webpki::Error::UnsupportedCertVersion) => {
                    "; the relay's certificate is of X.509 version 1: make one with a subjectAltName".to_owned()
                }
                _ => String::new(),
            },
            _ => String::new(),
        }
    }
}

/// Whether the answer was none of TLS, or the end of the connection.
fn is_no_tls(error: &io::Error) -> bool {
    let answer = error.get_ref().and_then(|error| error.downcast_ref());
    error.kind() == io::ErrorKind::UnexpectedEof
        || matches!(answer, Some(rustls::Error::InvalidMessage(_) | rustls::Error::PeerIncompatible(_)))
}

fn refused_certificate(error: &io::Error) -> Option<&CertificateError> {
    let error: &(dyn Error + 'static) = error.get_ref()?;
    match error.downcast_ref() {
        Some(rustls::Error::InvalidCertificate(why)) => Some(why),
        _ => None,
    }
}

impl ServerTls {
    /// Reads PEM files: a certificate chain that begins with the relay's own certificate, and the
    /// private key.
    ///
    /// # Errors
    /// [`TlsError::File`], and [`TlsError::Refused`] for a key that does not fit.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<ServerTls, TlsError> {
        let chain = certificates(certificate)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|error| file("a private key", key, &error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        Ok(ServerTls(TlsAcceptor::from(Arc::new(config))))
    }

    pub(crate) async fn accept(&self, tcp: Counted) -> Result<TlsStream<Counted>, WireError> {
        let stream = self.0.accept(tcp).await;
        stream
            .map(Into::into)
            .map_err(|error| WireError::handshake(format!("no TLS with the client: {error}")))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let what = "certificates";
    let read = CertificateDer::pem_file_iter(path).map_err(|error| file(what, path, &error))?;
    let list: Vec<_> = read.collect::<Result<_, _>>().map_err(|error| file(what, path, &error))?;
    if list.is_empty() { Err(file(what, path, &"there are none in it")) } else { Ok(list) }
}

fn file(what: &'static str, path: &Path, why: &dyn std::fmt::Display) -> TlsError {
    TlsError::File { what, path: path.display().to_string(), why: why.to_string() }
}
