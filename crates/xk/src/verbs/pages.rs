//! `xk pages`: writes what a package installs beside the command: a manual page for each verb, and completions for shells.
//! They are made of the same definitions as `--help`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

use crate::exit::{Failure, Result};
use crate::Cli;

/// What to write, and where.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// An existing directory
    folder: PathBuf,
}

/// Shells, and what their completions are called in the places where distributions keep them.
const SHELLS: [(Shell, &str); 3] = [(Shell::Bash, "xk.bash"), (Shell::Zsh, "_xk"), (Shell::Fish, "xk.fish")];

/// Writes the pages and the completions.
pub fn run(args: &Args) -> Result {
    let mut command = Cli::command();
    command.build();
    let mut pages = Vec::new();
    collect(&command, &mut pages);
    for (name, text) in pages {
        write(&args.folder, &name, &text)?;
    }
    for (shell, name) in SHELLS {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "xk", &mut text);
        write(&args.folder, name, &text)?;
    }
    Ok(())
}

fn write(folder: &Path, name: &str, text: &[u8]) -> Result {
    let path = folder.join(name);
    fs::write(&path, text).map_err(|error| Failure::error(format!("{}: {error}", path.display())))
}

/// Renders the page of a command, and those of its verbs, such as `xk-tune-status.1`.
fn collect(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let mut text = Vec::new();
    let page = clap_mangen::Man::new(command.clone()).title(name.to_uppercase()).section("1").manual("xk");
    // To memory; nothing can fail.
    if page.render(&mut text).is_ok() {
        pages.push((format!("{name}.1"), text));
    }
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
    verbs.for_each(|verb| collect(verb, pages));
}
