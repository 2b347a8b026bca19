//! A service that reads a disk, and says how much it has read to every client of its socket.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use anyhow::{Context, Result};

/// What is read before the disk is opened again. The kernel copies the read-ahead into a file when it is opened, and drops
/// what is cached of a disk when its last file is closed. So a change takes effect within milliseconds.
const READ: usize = 64 << 10;

/// The service.
pub struct Service {
    /// Pages read.
    done: Arc<AtomicU64>,
}

impl Service {
    /// Starts the service. It ends with this process.
    ///
    /// # Errors
    /// When the disk cannot be opened, or the socket exists.
    pub fn start(disk: &Path, socket: &Path) -> Result<Self> {
        File::open(disk).with_context(|| disk.display().to_string())?;
        let listener = UnixListener::bind(socket).with_context(|| socket.display().to_string())?;
        let done = Arc::new(AtomicU64::new(0));
        let (disk, count, told) = (disk.to_owned(), done.clone(), done.clone());
        // A disk that is gone ends the windows of the tuner, which says so.
        std::thread::spawn(move || while pass(&disk, &count).is_ok() {});
        std::thread::spawn(move || {
            for client in listener.incoming() {
                // A client that is gone does not want the answer.
                let _ = client.and_then(|mut client| writeln!(client, "{}", told.load(Ordering::Relaxed)));
            }
        });
        Ok(Self { done })
    }

    /// Pages read so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

/// Opens the disk, and reads from its beginning.
fn pass(disk: &Path, count: &AtomicU64) -> std::io::Result<()> {
    let (mut file, mut page) = (File::open(disk)?, vec![0; 4096]);
    for _ in 0..READ / page.len() {
        file.read_exact(&mut page)?;
        count.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
