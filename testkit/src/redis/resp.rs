use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// As much of the protocol (RESP2) as starting a server needs. The tests of the Redis store bring
/// a real client; a crate that starts servers for them should not depend on the same one.
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub(super) fn open(addr: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a command and answers its reply as text; an error reply is an error.
    pub(super) fn command(&mut self, arguments: &[impl AsRef<str>]) -> io::Result<String> {
        let mut request = format!("*{}\r\n", arguments.len());
        for argument in arguments {
            let argument = argument.as_ref();
            request.push_str(&format!("${}\r\n{argument}\r\n", argument.len()));
        }
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.reply()
    }

    fn reply(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let line = line.trim_end_matches("\r\n");
        let Some((kind, rest)) = line.split_at_checked(1) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        match kind {
            "+" | ":" => Ok(rest.to_owned()),
            "-" => Err(io::Error::other(rest.to_owned())),
            // A length of -1 is nil.
            "$" => match number(rest)? {
                None => Ok(String::new()),
                Some(length) => {
                    let mut bulk = vec![0; length + 2];
                    self.stream.read_exact(&mut bulk)?;
                    bulk.truncate(length);
                    Ok(String::from_utf8_lossy(&bulk).into_owned())
                }
            },
            "*" => {
                let parts = number(rest)?.unwrap_or_default();
                let parts: io::Result<Vec<_>> = (0..parts).map(|_| self.reply()).collect();
                Ok(parts?.join("\n"))
            }
            _ => Err(io::Error::other(format!("not RESP: {line}"))),
        }
    }
}

fn number(text: &str) -> io::Result<Option<usize>> {
    let number: i64 = text.parse().map_err(io::Error::other)?;
    Ok(usize::try_from(number).ok())
}
