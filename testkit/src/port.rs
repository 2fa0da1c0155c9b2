use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};

/// A TCP port of 127.0.0.1 that stays this value's until it is dropped, also while
/// nothing listens on it.
///
/// A server that is killed and restarted must find its port again. Two things would
/// take it meanwhile, and both are kept out:
///
/// - another test that looks for a free port: each reservation is also held as an
///   abstract Unix socket, a name that the kernel frees when the process ends;
/// - an *outgoing* connection, since the kernel hands those any port of its ephemeral
///   range. A client that keeps dialling a dead port of that range can even be handed
///   that very port and connect to itself. So ports come from outside the range.
#[derive(Debug)]
pub struct ReservedPort {
    port: u16,
    _name: UnixListener,
}

impl ReservedPort {
    /// Reserves a port that is free now, chosen at random.
    ///
    /// # Panics
    ///
    /// If no port is found in a thousand tries.
    #[must_use]
    pub fn reserve() -> Self {
        let ports = outside_of_ephemeral();
        let span = u64::from(ports.end - ports.start);
        for _ in 0..1000 {
            // A fresh `RandomState` is random enough to keep processes apart, without a dependency.
            let random = RandomState::new().build_hasher().finish() % span;
            let port = ports.start + u16::try_from(random).expect("below the span, a u16");
            // The name comes first: who holds it is alone in trying to bind the port.
            let Ok(name) = claim(port) else { continue };
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Self { port, _name: name };
            }
        }
        panic!("no free port of 127.0.0.1 in {ports:?}");
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address: 127.0.0.1 with the port.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }
}

fn claim(port: u16) -> std::io::Result<UnixListener> {
    let name = format!("leasehold-testkit-port-{port}");
    UnixListener::bind_addr(&UnixAddr::from_abstract_name(name)?)
}

fn outside_of_ephemeral() -> Range<u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let lowest = range.ok().and_then(|range| range.split_whitespace().next()?.parse().ok()).unwrap_or(32_768);
    // A machine whose ephemeral range begins lower leaves no better choice than to overlap.
    10_000..if lowest >= 12_000 { lowest } else { 32_768 }
}
