//! What keeps maps and attached programs in the kernel when no process has them: names in the BPF file system.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use libbpf_rs::{Link, MapCore, MapHandle, Object as Loader};
use rustix::fs::statfs;

use super::{failed, names};
use crate::{is_of_heap, Error};

const FOLDER: &str = "/sys/fs/bpf";
/// The folder of all extensions.
pub const PINS: &str = "/sys/fs/bpf/xk-flex";
/// `BPF_FS_MAGIC` of include/uapi/linux/magic.h.
const MAGIC: u64 = 0xcafe_4a11;

/// The names of one extension.
#[derive(Debug, Clone)]
pub struct Pins(PathBuf);

impl Pins {
    pub fn of(name: &str) -> Self {
        Self(Path::new(PINS).join(name))
    }

    pub fn exist(&self) -> bool {
        self.0.exists()
    }

    /// Fails if there is no BPF file system, or if the names are in use. Then nothing of it stays.
    pub fn create(&self) -> Result<(), Error> {
        if statfs(FOLDER).map_or(true, |found| found.f_type as u64 != MAGIC) {
            let reason = "it is no BPF file system: mount -t bpf bpf /sys/fs/bpf";
            return Err(Error::Kept { path: FOLDER.into(), reason: reason.into() });
        }
        fs::create_dir_all(PINS).map_err(|error| failed(Path::new(PINS), &error))?;
        fs::create_dir(&self.0).map_err(|error| failed(&self.0, &error))?;
        for folder in [self.maps(), self.links()] {
            if let Err(error) = fs::create_dir(&folder) {
                // There is an error to report already.
                _ = self.remove();
                return Err(failed(&folder, &error));
            }
        }
        Ok(())
    }

    fn maps(&self) -> PathBuf {
        self.0.join("maps")
    }

    fn links(&self) -> PathBuf {
        self.0.join("links")
    }

    /// A dot is reserved in names of this file system.
    fn map_path(&self, name: &str) -> PathBuf {
        self.maps().join(name.replace('.', "_"))
    }

    /// Names all maps of an object.
    pub fn pin_maps(&self, object: &mut Loader) -> Result<(), Error> {
        for mut map in object.maps_mut() {
            let path = self.map_path(&map.name().to_string_lossy());
            map.pin(&path).map_err(|error| Error::Kept { path, reason: error.to_string() })?;
        }
        Ok(())
    }

    /// Names what attaches a program.
    pub fn pin_link(&self, program: &str, link: &mut Link) -> Result<(), Error> {
        let path = self.links().join(program);
        link.pin(&path).map_err(|error| Error::Kept { path, reason: error.to_string() })
    }

    /// The map of that name, if the object has it.
    pub fn map(&self, name: &str) -> Result<Option<MapHandle>, Error> {
        let path = self.map_path(name);
        if !path.exists() {
            return Ok(None);
        }
        let map = MapHandle::from_pinned_path(&path);
        map.map(Some).map_err(|error| Error::Kept { path, reason: error.to_string() })
    }

    /// The programs that are attached.
    pub fn attached(&self) -> Vec<String> {
        names(&self.links())
    }

    /// Detaches all programs.
    pub fn detach(&self) -> Result<(), Error> {
        let mut programs = self.attached();
        programs.sort_by_key(|name| is_of_heap(name));
        for program in programs {
            let path = self.links().join(program);
            fs::remove_file(&path).or_else(if_there).map_err(|error| failed(&path, &error))?;
        }
        Ok(())
    }

    /// Removes all names. What nobody has then goes.
    pub fn remove(&self) -> Result<(), Error> {
        self.detach()?;
        fs::remove_dir_all(&self.0).or_else(if_there).map_err(|error| failed(&self.0, &error))
    }
}

/// What is not there need not go.
fn if_there(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}
