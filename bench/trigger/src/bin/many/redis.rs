//! A Redis server without a disk, and what keeps it busy: a few connections over loopback, each with one request
//! under way, as a client with as many threads has them. Server and clients share the guest's one CPU; the
//! instructions of both are counted.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use xk_bench_trigger::measure::counter;

use crate::load::Exchange;

const PORT: &str = "7379";
const START: Duration = Duration::from_millis(100);
const STARTS: u32 = 100;

/// Ends with its owner.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It has nothing to write down; that it is gone already is no error either.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server and connections to it.
pub struct Redis {
    connections: Vec<TcpStream>,
    answer: Vec<u8>,
    _server: Server,
}

impl Redis {
    /// Starts one.
    ///
    /// # Errors
    /// When it does not start, or does not answer.
    pub fn start(program: &Path, connections: usize) -> Result<Self> {
        let child = Command::new(program)
            // Debian's package of the tools has the server's program, too, and starts no service.
            .arg0("redis-server")
            .args(["--port", PORT, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", "/tmp"])
            // What it does from time to time would be in some rounds and not in others.
            .args(["--hz", "1", "--dynamic-hz", "no", "--activerehashing", "no", "--jemalloc-bg-thread", "no"])
            .args(["--loglevel", "warning"])
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("{}: run `scripts/setup bench`", program.display()))?;
        let server = Server(child);
        let first = (0..STARTS).find_map(|_| {
            sleep(START);
            TcpStream::connect(("127.0.0.1", 7379)).ok()
        });
        first.context("redis-server did not start")?;
        let connections = (0..connections).map(|_| {
            let connection = TcpStream::connect(("127.0.0.1", 7379))?;
            connection.set_nodelay(true)?;
            Ok(connection)
        });
        let connections = connections.collect::<std::io::Result<_>>()?;
        Ok(Self { connections, answer: vec![0; 1 << 20], _server: server })
    }

    /// Makes requests; the instructions that this took, all of the machine's.
    ///
    /// # Errors
    /// When an answer is another than expected.
    pub fn serve(&mut self, exchanges: &[Exchange]) -> Result<u64> {
        let before = counter();
        let mut wrong = 0;
        for batch in exchanges.chunks(self.connections.len()) {
            for (connection, exchange) in self.connections.iter_mut().zip(batch) {
                connection.write_all(&exchange.request)?;
            }
            for (connection, exchange) in self.connections.iter_mut().zip(batch) {
                let answer = self.answer.get_mut(..exchange.answer.len()).context("a value that is too large")?;
                connection.read_exact(answer)?;
                wrong += u32::from(answer != exchange.answer);
            }
        }
        let after = counter();
        ensure!(wrong == 0, "{wrong} of {} answers are wrong", exchanges.len());
        Ok(after - before)
    }
}
