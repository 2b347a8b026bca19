//! Finding, naming and varying performance constants.
//!
//! A [`Spec`] is what a user writes. [`resolve()`] turns it into a [`Constant`] of the deployed
//! kernel: its [`ConstId`], default, C type and place in the source. [`users()`] lists every
//! deployed translation unit that may depend on it, [`choose_values`] proposes values, [`build()`]
//! compiles a unit with one of them, and [`layout_sensitive`] tells whether types changed size.
//! [`survey()`] lists the constants of the whole kernel that look worth it.

mod build;
mod computed;
mod conditions;
mod constant;
mod debug;
mod diff;
mod edit;
mod eval;
mod facts;
mod find;
mod id;
mod inclusion;
mod index;
mod initialisers;
mod layout;
mod lines;
mod marked;
mod memo;
mod opaque;
mod paste;
mod patch;
mod path_set;
mod probe;
mod prune;
mod resolve;
mod role;
mod scan;
mod search_path;
mod spec;
mod survey;
mod token;
mod tree;
mod unreadable;
mod users;
mod value;
mod variables;
mod witness;

pub use build::{build, build_debug, build_noted, BuildError, RejectedBy, NOTED, QUICK};
pub use constant::{Constant, Form, SourceRange};
pub use edit::{edit, EditError};
pub use id::{ConstId, IdError};
pub use index::Index;
pub use initialisers::{Word, MARK, WORD};
pub use layout::{layout_sensitive, LayoutChange, LayoutError};
pub use lines::{lines, Row};
pub use memo::recall;
pub use opaque::{build_opaque, build_words, opaque_text, Opaque, OBJECT, SYMBOL};
pub use patch::{patched, PatchError, Patched};
pub use path_set::{glob, subsystems, PathSet, PathSetError};
pub use probe::Sight;
pub use resolve::{resolve, ResolveError};
pub use spec::{Spec, SpecError};
pub use survey::{survey, Category, Listed, Survey, Written};
pub use tree::{BuildTree, FileEdit, TreeError, Unit};
pub use unreadable::Unreadable;
pub use users::{users, Followed, Mention, Users};
pub use value::{choose_values, CType, Edges, Operator, Values};
pub use variables::{variables, Location, Point, Variable, VariablesError};
