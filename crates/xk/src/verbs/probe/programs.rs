//! The programs of a file at their instructions: what `xk probe run` and `xk probe attach` share.

use std::path::{Path, PathBuf};

use xk_kernel::{KernelChoice, KernelId};
use xk_policy::SourceCompiler;
use xk_probe::{prints, probes, wants_taken, Class, Given, Place, Places, Probe, Programs, Resolver, Taken};
use xk_runtime::{Attached, Device};
use xk_store::Folders;

use crate::exit::{Failure, Result};
use crate::options::KernelArgs;
use crate::sites::notice;

use super::compile::ProbeSource;
use super::probed::{reached, Probed, Ways};
use super::{parse_class, places, running, spread};

/// A file, and where its programs run.
#[derive(Debug, clap::Args)]
pub struct FileArgs {
    /// FILE.bpf.c or FILE.bpf.o
    file: PathBuf,
    /// Run the only program of the file here, wherever its section says
    #[arg(long, value_name = "WHERE", num_args = 1..)]
    at: Vec<String>,
    /// Which instructions of lines, and of functions without an offset
    #[arg(long, value_name = "CLASS", value_parser = parse_class)]
    class: Option<Class>,
    /// Programs that ask which functions' addresses are taken are told that those of these are not
    #[arg(long, value_name = "FUNCTION", num_args = 1..)]
    distrust: Vec<String>,
    /// Refuse instructions that a jump cannot reach
    #[arg(long)]
    jumps_only: bool,
    #[command(flatten)]
    kernel: KernelArgs,
}

/// Programs that the kernel has verified, and their instructions. Nothing is attached.
pub struct Prepared {
    pub device: Device,
    pub programs: Programs,
    /// The file, compiled.
    pub object: Vec<u8>,
    /// The name of the file.
    name: String,
    probes: Vec<(Probe, Probed)>,
    ways: Ways,
}

/// A program that runs.
pub struct Running {
    pub probe: Probe,
    pub probed: Probed,
    pub attached: Attached,
}

impl FileArgs {
    /// Compiles the file, finds the instructions, and hands the programs to the kernel. Notices go to standard error, if
    /// they are wanted.
    ///
    /// # Errors
    /// The file does not compile, a place cannot be probed, or the kernel refuses a program.
    pub fn prepare(&self, notices: bool) -> Result<Prepared> {
        let ways = Ways::new(self.jumps_only)?;
        let at = places(&self.at, self.class.as_ref())?;
        let source =
            ProbeSource { file: &self.file, at: &at, class: self.class.clone(), kernel: &self.kernel, types: None };
        let object = match source.object()? {
            Some(object) => object,
            None => object(&self.file)?,
        };
        let probes = probes(&object, &at, self.class.as_ref()).map_err(|error| self.failure(error))?;
        let mut read = Places::of(&object).map_err(|error| self.failure(error))?;
        let mut all: Vec<Place> = probes.iter().flat_map(|probe| probe.places.clone()).collect();
        all.extend(read.iter().flat_map(|read| read.names().to_vec()));
        let resolver = running(&self.kernel, &all)?;
        if !resolver.unread().is_empty() && notices {
            eprintln!("left out, since their files are not known: {}", resolver.unread().join(", "));
        }
        let mut probed =
            probes.iter().map(|probe| Probed::new(&resolver, &probe.places)).collect::<Result<Vec<_>>>()?;
        if let Some(read) = &mut read {
            read.find(&resolver, &KernelId::live()?.build_id).map_err(|error| self.failure(error))?;
            for (probe, probed) in probes.iter().zip(&probed) {
                let found = probed.all.iter().map(|(found, _)| found);
                read.check(&object, &probe.program, found).map_err(|error| self.failure(error))?;
            }
        }
        let taken = match wants_taken(&object) {
            true => Some(self.taken(&resolver, notices)?),
            false => None,
        };
        // Its memory is needed no longer.
        drop(resolver);
        if taken.is_some() || read.is_some() {
            probed.iter_mut().for_each(Probed::hold_modules);
        }
        let device = Device::open()?;
        let calls: Vec<u64> = probed.iter().flat_map(Probed::cookies).collect();
        let given = Given { taken: taken.as_ref(), places: read.as_ref(), calls: &calls };
        let programs = Programs::load_with(&object, &probes, given)?;
        let name = self.file.file_name().unwrap_or(self.file.as_os_str()).to_string_lossy().into_owned();
        let probes = probes.into_iter().zip(probed).collect();
        Ok(Prepared { device, programs, object, name, probes, ways })
    }

    fn failure(&self, error: impl Into<Failure>) -> Failure {
        error.into().about(&self.file.display().to_string())
    }

    /// The functions whose address is taken.
    fn taken(&self, resolver: &Resolver, notices: bool) -> Result<Taken> {
        let mut all = resolver.taken()?;
        for place in places(&self.distrust, None)? {
            let found = resolver.resolve(&place)?.found;
            let start = found.first().map(|found| found.address - found.offset);
            let known = all.len();
            all.retain(|address| Some(*address) != start);
            if all.len() == known {
                return Err(Failure::error(format!("--distrust {place}: nothing takes the address of this function")));
            }
        }
        let taken = Taken::new(&all);
        if notices {
            eprintln!("the addresses of {} functions are taken", taken.len());
        }
        Ok(taken)
    }
}

impl Prepared {
    /// Whether a program prints to the kernel's trace.
    pub fn prints(&self) -> bool {
        prints(&self.object)
    }

    /// Attaches the programs. If one cannot be attached, those before end with the device.
    ///
    /// # Errors
    /// Exit code 3 if the kernel refuses a place.
    pub fn attach(&mut self, notices: bool) -> Result<Vec<Running>> {
        let mut all = Vec::new();
        for (probe, probed) in std::mem::take(&mut self.probes) {
            let programs = self.programs.all(&probe);
            let missing = || Failure::error(format!("{}: there is no program {}", self.name, probe.program));
            let programs = programs.ok_or_else(missing)?;
            let name = format!("{} of {}", probe.program, self.name);
            let attached = probed.attach(&self.device, &name, Some((&self.programs, &programs)), self.ways)?;
            if notices {
                eprint!("{}", spread(&probe.places, &probed.all));
                eprintln!("{}: {}", probe.program, reached(probed.all.len(), attached.jumps as usize));
            }
            all.push(Running { probe, probed, attached });
        }
        Ok(all)
    }
}

fn object(file: &Path) -> Result<Vec<u8>> {
    let folders = Folders::from_environment();
    Ok(SourceCompiler { folders: &folders, kernel: &KernelChoice::default(), say: &notice }.object(file)?)
}
