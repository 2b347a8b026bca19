//! What commands that serve a port in the kernel have in common: the extension stays when the command ends, and the next
//! one goes on with what it keeps.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, thread};

use xk_flex::kept::{Kept, Options};
use xk_flex::{Choice, Control};
use xk_policy::{compile, Headers, RUNNING_BTF};

use crate::Protocol;

/// Where the kernel shows the module.
const MODULE: &str = "/sys/module/xk";
/// How long a packet may take. It may contain thousands of requests, and a client whose run is ended is disconnected.
const DEADLINE: Duration = Duration::from_millis(500);

/// An error, as it is printed.
pub type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// What to serve.
#[derive(Clone, Debug)]
pub struct Extension {
    /// Its source, or the object that clang made of it.
    pub file: PathBuf,
    /// What it is called in `xk flex list`.
    pub name: String,
    /// How much memory it may take, in MiB.
    pub heap: u64,
    /// What it keeps, for messages.
    pub keeps: &'static str,
}

fn object(path: &Path) -> Fallible<Vec<u8>> {
    if path.extension().is_none_or(|extension| extension != "c") {
        return fs::read(path).map_err(|error| format!("{}: {error}", path.display()).into());
    }
    let folder = tempfile::tempdir()?;
    Ok(compile(path, &Headers::new(RUNNING_BTF.as_ref(), folder.path(), "running")?)?)
}

impl Extension {
    /// The extension that is there, with what it keeps, or a new one.
    fn kept(&self) -> Fallible<Kept> {
        let name = &self.name;
        if let Ok(kept) = Kept::open(name) {
            let status = kept.status();
            let record =
                status.record.ok_or_else(|| format!("loading {name} was interrupted: xk flex unload {name}"))?;
            if status.is_served {
                return Err(format!("another process serves the extension {name}").into());
            }
            let (keeps, file) = (self.keeps, record.file.display());
            eprintln!("going on with the {keeps} of {file}; `xk flex unload {name}` drops them");
            return Ok(kept);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let options = Options {
            name,
            file: &std::path::absolute(&self.file)?,
            now: now.try_into().unwrap_or(i64::MAX),
            choice: Choice::default(),
            control: Control { deadline: Some(DEADLINE), ..Control::default() },
            heap: Some(self.heap << 20),
            interface: None,
            most_ended: None,
        };
        // This process serves it from the next moment on.
        Kept::load(&object(&self.file)?, &options, || Ok::<(), xk_flex::Error>(()))?;
        Ok(Kept::open(name)?)
    }

    /// Serves it until it is unloaded. `check` is called before anything is loaded, and `front` with the extension; `serve`
    /// serves the port until it is told to stop. `ready` is printed when it serves.
    ///
    /// # Errors
    /// Those of the extension, and of what is called.
    pub fn serve<P: Protocol>(
        &self,
        check: impl FnOnce() -> Fallible<()>,
        front: impl FnOnce(&Kept) -> Fallible<Arc<P>>,
        serve: impl Fn(&Arc<P>, &AtomicBool) -> Fallible<()>,
        ready: &str,
    ) -> Fallible<()> {
        if !Path::new(MODULE).exists() {
            return Err("xk.ko is not loaded, whose functions send replies: insmod xk.ko".into());
        }
        check()?;
        let kept = self.kept()?;
        let front = front(&kept)?;
        let stop = AtomicBool::new(false);
        thread::scope(|scope| -> Fallible<()> {
            let served = scope.spawn(|| {
                let ended = kept.serve_heap(
                    Some(front.port().heap()),
                    || eprintln!("{ready}"),
                    |wait| {
                        thread::sleep(wait);
                        stop.load(Ordering::Relaxed)
                    },
                );
                // It was unloaded.
                stop.store(true, Ordering::Relaxed);
                ended
            });
            let ended = serve(&front, &stop);
            stop.store(true, Ordering::Relaxed);
            served.join().map_err(|_| "the thread that serves the extension panicked")??;
            ended
        })
    }
}

/// Prints why a command has failed.
#[must_use]
pub fn exit(command: &str, result: Fallible<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{command}: {error}");
            ExitCode::FAILURE
        }
    }
}
