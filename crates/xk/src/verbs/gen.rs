//! `xk gen`: writes a policy to start from.

use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

use xk_policy::variables::{at_sites, read, AtSite};
use xk_store::{Folders, Tables};
use xk_table::ScopeTable;

use crate::exit::{Failure, Result};
use crate::options::KernelArgs;
use crate::output::{values, Paint};

/// Arguments of `xk gen`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The constant
    name: String,
    /// Output file (default: NAME.bpf.c); an existing file is never overwritten
    #[arg(short, long)]
    output: Option<PathBuf>,
    #[command(flatten)]
    kernel: KernelArgs,
}

/// Writes it.
pub fn run(args: &Args) -> Result {
    let image = args.kernel.choice().image()?;
    let folders = Folders::from_environment();
    let tables = Tables::read(&folders, &image.id().build_id)?;
    let table = tables.find(&folders, &args.name)?;
    let identifier = identifier(table.constant.title());
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{identifier}.bpf.c")));
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Failure::error(format!(
            "{} exists already, and was not changed; --output names another file",
            path.display()
        )),
        _ => Failure::error(format!("{}: {error}", path.display())),
    };
    if path.exists() {
        return Err(failed(std::io::ErrorKind::AlreadyExists.into()));
    }
    let say = |line: &str| eprintln!("{}", Paint::stderr().dim(line));
    // A policy can be written without the source.
    let tree = args.kernel.choice().tree(&image, &folders.cache, &say).map_err(Failure::from);
    let variables = tree
        .and_then(|tree| Ok(at_sites(table, &tree, &folders.cache)?))
        .inspect_err(|failure| eprintln!("warning: variables are not known: {}", failure.message))
        .unwrap_or_default();
    let text = stub(table, &identifier, &variables);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    println!("{}", path.display());
    Ok(())
}

/// A name in C.
fn identifier(title: &str) -> String {
    let name: String =
        title.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    let name = name.trim_matches('_').to_owned();
    let name =
        if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() { format!("c_{name}") } else { name };
    name.chars().take(40).collect()
}

fn stub(table: &ScopeTable, identifier: &str, variables: &[AtSite]) -> String {
    let constant = &table.constant;
    let mut text = format!(
        "// SPDX-License-Identifier: GPL-2.0-only\n/*\n * {}: {}\n * default {}, values {}; mode {}\n *\n",
        constant.title(),
        constant.id,
        constant.default,
        values(&table.values),
        table.mode
    );
    for (index, span) in table.spans.iter().enumerate() {
        let function = &table.functions[span.function];
        let module = function.module.as_deref().map(|module| format!(" [{module}]")).unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            " * site {index}: {}+{:#x}{module}, {}",
            function.symbol, span.indirection.offset, function.source
        );
        let there = variables.get(index).map_or(&[][..], |site| &site.variables);
        for variable in there {
            let _ = match read(variable) {
                Ok(_) => writeln!(text, " *	XK_VAR({})	{}", variable.name, variable.type_name),
                Err(why) => writeln!(text, " *	no {}: {why}", variable.name),
            };
        }
    }
    let _ = write!(
        text,
        " */\n#include \"xk.bpf.h\"\n\nXK_TUNE({identifier}, \"{}\")\n{{\n\
         \t/* Set nothing until all threads have switched to this policy. */\n\
         \tif (!xk_transition_done(xk_ctx))\n\t\treturn 0;\n\n\
         \t/* Where the policy sets nothing, the default is used. */\n\txk_set(xk_ctx, xk_default(xk_ctx));\n\treturn 0;\n}}\n",
        constant.name.as_deref().unwrap_or(&constant.id)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_stub_says_what_is_there() {
        let variable = |name: &str, location| xk_const::Variable {
            name: name.into(),
            type_name: "struct blk_plug *".into(),
            size: 8,
            location,
        };
        let site = AtSite {
            place: "blk_add_rq_to_plug+0x2e".into(),
            variables: vec![
                variable("plug", xk_const::Location::Register(3)),
                variable("last", xk_const::Location::Gone("optimised away")),
            ],
        };
        fixture::golden("stub.bpf.c", &stub(&fixture::table(), "blk_max_request_count", &[site]));
    }

    #[test]
    fn titles_become_names() {
        assert_eq!(identifier("BLK_MAX_REQUEST_COUNT"), "blk_max_request_count");
        assert_eq!(identifier("net/ipv4/tcp_cubic.c:L439:3:0"), "net_ipv4_tcp_cubic_c_l439_3_0");
        assert_eq!(identifier("9:0"), "c_9_0");
    }
}
