//! The link over TLS.

mod support;

use std::fs;
use std::time::Duration;

use leasehold_core::{AtomicStore, CacheStore, Effect, ErrorKind, Hint, Outcome};
use leasehold_redis::{RedisConfig, RedisStore, redis};
use leasehold_testkit::{Family, RedisServer, ReservedPort};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use support::{DEADLINE, added, key, value};
use tokio::time::timeout;

#[tokio::test]
async fn a_server_is_trusted_by_its_authority_and_by_no_other() {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let server_key = KeyPair::generate().unwrap();
    let server =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&server_key, &authority).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let written = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let port = ReservedPort::reserve();
    let _server = RedisServer::builder()
        .family(Family::Redis)
        .config("tls-port", &port.port().to_string())
        .config("tls-auth-clients", "no")
        .config("tls-cert-file", &written("server.crt", server.pem()))
        .config("tls-key-file", &written("server.key", server_key.serialize_pem()))
        .config("tls-ca-cert-file", &written("ca.crt", authority.pem()))
        .start()
        .await;

    let url = format!("rediss://localhost:{}", port.port());
    let config = RedisConfig::from_url(&url).unwrap().with_connect_timeout(Duration::from_secs(10));
    // The system does not know our authority.
    let error = RedisStore::connect(config.clone()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error:?}");

    let root_cert = Some(authority.pem().into_bytes());
    let certificates = redis::TlsCertificates { client_tls: None, root_cert };
    let client = redis::Client::build_with_tls(url, certificates).unwrap();
    let store = RedisStore::with_client(&client, &config).await.unwrap();
    added(&store, &key("a"), "v").await;
    assert_eq!(value(&store, &key("a")).await.unwrap(), "v");
    let mut hints = store.watch(&key("a")).await.unwrap();
    assert_eq!(store.remove(&key("a")).await.unwrap(), Outcome::Applied);
    assert_eq!(timeout(DEADLINE, hints.next()).await.unwrap(), Some(Hint::Changed(key("a"))));
}
