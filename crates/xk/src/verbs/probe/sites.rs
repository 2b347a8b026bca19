//! `xk probe sites`: lists instructions of functions, or of a line of the source.

use serde_json::json;
use xk_probe::{Class, Resolved};

use crate::exit::Result;
use crate::options::KernelArgs;
use crate::output::{count, print_json, Columns};

use super::{document, known, parse_class, places};

/// Arguments of `xk probe sites`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Functions, where * and ? match characters; or FILE.c:LINE
    #[arg(value_name = "PATTERN")]
    pattern: String,
    /// Which instructions
    #[arg(long, value_name = "CLASS", value_parser = parse_class, default_value = "any")]
    class: Class,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    kernel: KernelArgs,
}

/// Lists them.
pub fn run(args: &Args) -> Result {
    let places = places(std::slice::from_ref(&args.pattern), Some(&args.class))?;
    let (resolver, in_image) = known(&args.kernel, &places)?;
    for place in &places {
        let resolved = resolver.resolve(place)?;
        if args.json {
            print_json(json!({
                "running": in_image.is_none(),
                "sites": resolved.found.iter().map(document).collect::<Vec<_>>(),
                "left_out": resolved.left_out,
                "functions": resolved.functions,
            }));
        } else {
            print!("{}", text(&resolved));
        }
    }
    Ok(())
}

fn text(resolved: &Resolved) -> String {
    let mut columns = Columns::default();
    columns.row(["PLACE", "BY", "INSTRUCTION"].map(String::from));
    for found in &resolved.found {
        columns.row([found.name(), found.reach.word().into(), found.text.clone()]);
    }
    let by = |word: &str| resolved.found.iter().filter(|found| found.reach.word() == word).count();
    format!(
        "{}{} of {}: {} by a jump, {} by the function tracer, {} by a kprobe; {} cannot be probed\n",
        columns.lines(""),
        count(resolved.found.len(), "instruction"),
        count(resolved.functions, "function"),
        by("jump"),
        by("tracer"),
        by("kprobe"),
        count(resolved.left_out, "other")
    )
}
