//! Compiling a source whose probes read variables of the kernel's source (`XK_VAR`).

use std::fs;
use std::path::Path;

use xk_policy::variables::{uses, Use};
use xk_policy::{compile_with, Headers, Variables, RUNNING_BTF};
use xk_probe::{places_of, reading, Class, Live, Place, Resolver, Source};
use xk_store::Folders;

use crate::exit::{Failure, Result};
use crate::options::KernelArgs;
use crate::output::Paint;

/// A source of probes, and for which kernel it is compiled.
pub(in crate::verbs) struct ProbeSource<'a> {
    /// The source.
    pub file: &'a Path,
    /// The places of its only program, instead of its section.
    pub at: &'a [Place],
    /// The class of lines and functions that name none.
    pub class: Option<Class>,
    /// The kernel that has the variables.
    pub kernel: &'a KernelArgs,
    /// The file of its types; by default, those of the running kernel.
    pub types: Option<&'a Path>,
}

impl ProbeSource<'_> {
    /// The object, if probes of the source read variables.
    ///
    /// # Errors
    /// A variable cannot be read at one of the places, or the source does not compile.
    pub fn object(&self) -> Result<Option<Vec<u8>>> {
        if self.file.extension().is_none_or(|extension| extension != "c") {
            return Ok(None);
        }
        let name = self.file.display();
        let text = fs::read_to_string(self.file).map_err(|error| Failure::error(format!("{name}: {error}")))?;
        let uses = uses(&text).map_err(|error| Failure::error(format!("{name}:{}: {error}", error.line)))?;
        let reading: Vec<&Use> = uses.iter().filter(|of| !of.variables.is_empty()).collect();
        if reading.iter().all(|of| of.section().is_none()) {
            return Ok(None);
        }
        if let Some(policy) = reading.iter().find(|of| of.section().is_none()) {
            let line = policy.line;
            return Err(Failure::usage(format!(
                "{name}:{line}: a policy and a probe of one file cannot both use XK_VAR"
            )));
        }
        let probes = reading.into_iter().map(|of| Ok((of, self.places(of)?))).collect::<Result<Vec<_>>>()?;
        self.compile(&probes).map(Some)
    }

    fn places(&self, probe: &Use) -> Result<Vec<Place>> {
        if !self.at.is_empty() {
            return Ok(self.at.to_vec());
        }
        let about = |error: String| Failure::usage(format!("{}:{}: {error}", self.file.display(), probe.line));
        let section = probe.section().unwrap_or_default();
        let places = places_of(section, self.class.as_ref()).map_err(|error| about(error.to_string()))?;
        if places.is_empty() {
            return Err(about("the section names no place: write SEC(\"xk/WHERE\") in one line, or use --at".into()));
        }
        Ok(places)
    }

    fn compile(&self, probes: &[(&Use, Vec<Place>)]) -> Result<Vec<u8>> {
        let (image, runs) = super::image(self.kernel)?;
        let folders = Folders::from_environment();
        let say = |line: &str| eprintln!("{}", Paint::stderr().dim(line));
        let tree = self.kernel.choice().tree(&image, &folders.cache, &say)?;
        let source = Source::new(&image, &tree, &folders.cache)?;
        let places: Vec<Place> = probes.iter().flat_map(|(_, places)| places.clone()).collect();
        let lines = source.lines(&places)?;
        let live = if runs { Live::read().ok() } else { None };
        let resolver = Resolver::with_lines(&image, &places, live, lines)?;
        let header = reading(self.file, probes, &source, &resolver)?;
        let build_id = image.id().build_id.clone();
        let variables = Variables { header, build_id };
        let given = tempfile::tempdir().map_err(|error| Failure::error(error.to_string()))?;
        let headers = match self.types {
            // They are not cached, because nothing names their kernel.
            Some(types) => Headers::new(types, given.path(), "given")?,
            None => Headers::new(Path::new(RUNNING_BTF), &folders.cache, &variables.build_id)?,
        };
        Ok(compile_with(self.file, &headers, Some(&variables))?)
    }
}
