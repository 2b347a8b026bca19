//! From a file of a user to an object: C is compiled for a kernel, with the variables that it reads; an object is read.
//!
//! Refuses a source that does not compile, one that reads a variable outside of a policy, and one that reads a variable
//! that a site does not have.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use xk_kernel::{ChoiceError, IdError, KernelChoice, KernelId, SourceError as TreeError};
use xk_store::{Folders, ListError, LookupError, Tables};

use crate::compile::compile_defining;
use crate::variables::{at_sites, header, uses, AtSite, HeaderError, OutsidePolicy, SitesError, Use};
use crate::{Error, Headers, Variables, RUNNING_BTF};

/// Something that the user may want to see while a policy is compiled or loaded.
#[derive(Debug)]
pub enum Notice<'a> {
    /// A step of a long preparation.
    Progress(&'a str),
    /// A warning: a policy reads arguments of a function from registers, which do not hold them at a site.
    Registers {
        /// The source.
        file: &'a Path,
        /// Its line, from 1.
        line: usize,
    },
}

/// Why a file does not become an object.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The compiler, or the headers of the kernel.
    #[error(transparent)]
    Policy(#[from] Error),
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// There is no directory for temporary files.
    #[error("{0}")]
    NoFolder(io::Error),
    /// A variable is read outside of every policy.
    #[error("{}:{}: {error}", file.display(), error.line)]
    Outside {
        /// The source.
        file: PathBuf,
        /// The variable and its line.
        error: OutsidePolicy,
    },
    /// A probe reads a variable, and this is not how probes are compiled.
    #[error("{}:{line}: a probe reads `{name}`: `xk probe run` and `xk compile` compile it", file.display())]
    OfProbe {
        /// The source.
        file: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// The variable.
        name: String,
    },
    /// The running kernel cannot be identified.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The kernel cannot be analysed.
    #[error(transparent)]
    Choice(Box<ChoiceError>),
    /// The source tree of the kernel cannot be prepared.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A directory of tables cannot be listed.
    #[error(transparent)]
    List(#[from] ListError),
    /// The constant of a policy has no table.
    #[error("{place}: {error}")]
    Lookup {
        /// `file:line` of the policy.
        place: String,
        /// Why.
        error: Box<LookupError>,
    },
    /// A constant has no table.
    #[error(transparent)]
    Constant(#[from] LookupError),
    /// The variables at the sites of a policy's constant are not known.
    #[error("{place}: {error}")]
    PolicySites {
        /// `file:line` of the policy.
        place: String,
        /// Why.
        error: Box<SitesError>,
    },
    /// The variables at the sites of a constant are not known.
    #[error(transparent)]
    Sites(Box<SitesError>),
    /// A site does not have a variable.
    #[error(transparent)]
    Header(#[from] HeaderError),
}

impl From<ChoiceError> for SourceError {
    fn from(error: ChoiceError) -> Self {
        Self::Choice(Box::new(error))
    }
}

impl From<SitesError> for SourceError {
    fn from(error: SitesError) -> Self {
        Self::Sites(Box::new(error))
    }
}

/// Compiles policies for one kernel.
pub struct SourceCompiler<'a> {
    /// The directories of headers, source trees and tables.
    pub folders: &'a Folders,
    /// The kernel that has the variables.
    pub kernel: &'a KernelChoice,
    /// Is called with each notice.
    pub say: &'a dyn Fn(&Notice<'_>),
}

impl SourceCompiler<'_> {
    /// The object of a file: a C source is compiled with the types of the running kernel, another file is read.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn object(&self, file: &Path) -> Result<Vec<u8>, SourceError> {
        if file.extension().is_some_and(|extension| extension == "c") {
            return self.compile_for_running(file);
        }
        fs::read(file).map_err(|error| SourceError::Io { path: file.to_owned(), error })
    }

    /// Compiles a source with the types of the running kernel.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn compile_for_running(&self, file: &Path) -> Result<Vec<u8>, SourceError> {
        self.compile_defining(file, None, &[])
    }

    /// Compiles a source with the types in the file `btf`. These types are not cached, because nothing names their kernel.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn compile_with_types(&self, file: &Path, btf: &Path) -> Result<Vec<u8>, SourceError> {
        self.compile_defining(file, Some(btf), &[])
    }

    /// Compiles a source with these macros, and with the types in the file `btf` or, without one, of the running kernel.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn compile_defining(&self, file: &Path, btf: Option<&Path>, macros: &[&str]) -> Result<Vec<u8>, SourceError> {
        let Some(btf) = btf else {
            let headers = Headers::new(Path::new(RUNNING_BTF), &self.folders.cache, &KernelId::live()?.build_id)?;
            return self.compile(file, &headers, macros);
        };
        let folder = tempfile::tempdir().map_err(SourceError::NoFolder)?;
        self.compile(file, &Headers::new(btf, folder.path(), "given")?, macros)
    }

    /// Compiles the text of a source.
    pub(crate) fn compile_text(&self, text: &str) -> Result<Vec<u8>, SourceError> {
        let folder = tempfile::tempdir().map_err(SourceError::NoFolder)?;
        let path = folder.path().join("scoped.bpf.c");
        fs::write(&path, text).map_err(|error| SourceError::Io { path: path.clone(), error })?;
        self.compile_for_running(&path)
    }

    fn compile(&self, file: &Path, headers: &Headers, macros: &[&str]) -> Result<Vec<u8>, SourceError> {
        let text = fs::read_to_string(file).map_err(|error| SourceError::Io { path: file.to_owned(), error })?;
        let uses = uses(&text).map_err(|error| SourceError::Outside { file: file.to_owned(), error })?;
        let policies = || uses.iter().filter(|tune| tune.constant().is_some());
        for &line in policies().flat_map(|tune| &tune.registers) {
            (self.say)(&Notice::Registers { file, line });
        }
        if let Some((name, line)) = uses.iter().filter(|of| of.section().is_some()).find_map(|of| of.variables.first())
        {
            return Err(SourceError::OfProbe { file: file.to_owned(), line: *line, name: name.clone() });
        }
        let reading: Vec<&Use> = policies().filter(|tune| !tune.variables.is_empty()).collect();
        let variables = match reading.is_empty() {
            true => None,
            false => Some(self.variables(file, &reading)?),
        };
        Ok(compile_defining(file, headers, variables.as_ref(), macros)?)
    }

    fn variables(&self, file: &Path, reading: &[&Use]) -> Result<Variables, SourceError> {
        let image = self.kernel.image()?;
        let build_id = image.id().build_id.clone();
        let tables = Tables::read(self.folders, &build_id)?;
        let tree = self.kernel.tree(&image, &self.folders.cache, &self.progress())?;
        let mut all = Vec::new();
        for tune in reading {
            let place = || format!("{}:{}", file.display(), tune.line);
            let table = tables
                .find(self.folders, tune.constant().unwrap_or_default())
                .map_err(|error| SourceError::Lookup { place: place(), error: Box::new(error) })?;
            let sites = at_sites(table, &tree, &self.folders.cache)
                .map_err(|error| SourceError::PolicySites { place: place(), error: Box::new(error) })?;
            all.push((*tune, sites));
        }
        Ok(Variables { header: header(file, &all)?, build_id })
    }

    /// The variables that the source of the kernel has at the sites of a constant.
    ///
    /// # Errors
    /// The kernel, its source or the table of the constant is missing.
    pub fn sites(&self, tables: &Tables, constant: &str) -> Result<Vec<AtSite>, SourceError> {
        let image = self.kernel.image()?;
        let tree = self.kernel.tree(&image, &self.folders.cache, &self.progress())?;
        Ok(at_sites(tables.find(self.folders, constant)?, &tree, &self.folders.cache)?)
    }

    fn progress(&self) -> impl Fn(&str) + '_ {
        |line| (self.say)(&Notice::Progress(line))
    }
}
