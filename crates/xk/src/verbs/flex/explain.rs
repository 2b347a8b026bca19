//! `xk flex explain`: each loop, and what happens to it.

use serde_json::json;
use xk_flex::{Done, Rewritten};

use crate::exit::Result;
use crate::output::print_json;

/// Arguments of `xk flex explain`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    input: super::Input,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Prints each loop.
pub fn run(args: &Args) -> Result {
    let Rewritten { loops, looks, .. } = args.input.rewritten()?;
    if args.json {
        let loops: Vec<_> = loops
            .iter()
            .map(|found| {
                json!({
                    "function": found.function,
                    "place": found.place,
                    "back_edges": found.back_edges,
                    "instrumented": found.done == Done::Instrumented,
                    "why": super::words(found),
                    "copies": found.copies,
                    "not_unrolled": found.rolled.as_ref().map(ToString::to_string),
                    "instructions": found.cost,
                })
            })
            .collect();
        let looks: Vec<_> = looks
            .iter()
            .map(|look| {
                json!({
                    "function": look.function,
                    "place": look.place,
                    "releases": look.releases,
                    "returns": look.returns,
                })
            })
            .collect();
        print_json(json!({ "loops": loops, "looks": looks }));
        return Ok(());
    }
    if loops.is_empty() {
        println!("no loop: the object stays as it is");
    }
    for found in &loops {
        println!("{} {}", found.function, found.place);
        println!("  {}", super::words(found));
        if let Some(cost) = super::cost(found) {
            println!("  {cost}");
        }
        println!("  back edges at {}", found.back_edges.join(", "));
    }
    for (number, look) in looks.iter().enumerate() {
        println!("look {number}: {} {}", look.function, look.place);
        if look.returns {
            println!("  the program returns: whether it accessed the heap where no page is; locks that it still holds are released");
        }
        for release in &look.releases {
            println!("  releases by {release}");
        }
    }
    Ok(())
}
