//! The kernel under study: identity, text, symbols, source, configuration, bundles.
//!
//! What comes in: a running kernel, a file saved from one, or the files of a
//! distribution's packages. What goes out: bytes at addresses, symbols,
//! types, and translation units compiled exactly as they were for the
//! deployed kernel. Nothing here knows what a performance constant is.

mod bundle;
mod choice;
mod command;
mod doctor;
mod env;
mod featureset;
mod hz;
mod id;
mod image;
mod kbuild;
mod overlay;
#[doc(hidden)]
pub mod parsers;
mod prepare;
mod source;
mod toolchain;
mod tree;
mod units;

pub use bundle::{Bundle, BundleError, BundleExtras, LoadedModule, LoadedSection};
pub use choice::{ChoiceError, KernelChoice};
pub use command::{CommandError, CompileCommand, CompileError};
pub use doctor::{doctor, Check, DoctorOptions, Status};
pub use env::{Env, HostEnv, RunOutput};
pub use featureset::{Featureset, FeaturesetError};
pub use hz::{hz_of, UnknownHz};
pub use id::{IdError, KernelId};
pub use image::{
    CoreFault, ElfError, Image, ImageError, KallsymsError, KernelFault, Module, ModuleFault, ModuleRelocation,
    ModuleSection, ModuleSymbol, Symbol, SymbolsError, UnpackError,
};
pub use overlay::{Compiled, Overlay};
pub use source::{Compiler, Source, SourceError, SourceHints};
pub use toolchain::{Toolchain, ToolchainError};
pub use tree::{DeployedUnit, Tree};
