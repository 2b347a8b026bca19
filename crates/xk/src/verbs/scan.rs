//! `xk scan`: which constants of a kernel look worth tuning, and why.

use std::collections::HashSet;

use clap::builder::PossibleValuesParser;
use serde_json::json;
use xk_const::{glob, survey, Category, Listed, PathSet, Written};
use xk_kernel::Tree;
use xk_store::Folders;
use xk_table::KernelRef;

use crate::exit::{Failure, Result};
use crate::options::KernelArgs;
use crate::output::{count, print_json, to_json, Columns, Paint};

/// Width of the reasons on a terminal line.
const REASONS: usize = 60;

/// Arguments of `xk scan`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The list is a proposal from the text of the source, not from the compiler; `xk build ID` finds out
whether a constant can be tuned. Without a path or subsystem, the whole kernel is listed. The first
scan of a kernel reads all of its sources and takes up to a minute.")]
pub struct Args {
    /// A file or folder of the source, a subsystem (mm, tcp, io_uring, ...) or a title in MAINTAINERS
    #[arg(value_name = "PATH|SUBSYSTEM")]
    within: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Only constants of this category; may be repeated
    #[arg(long, value_name = "CATEGORY", value_parser = PossibleValuesParser::new(Category::ALL.map(|(_, word)| word)))]
    category: Vec<String>,
    /// Only constants of this form; may be repeated
    #[arg(long, value_name = "FORM", value_parser = PossibleValuesParser::new(Written::ALL.map(|(_, word)| word)))]
    form: Vec<String>,
    /// Only names that match; `*` matches any text
    #[arg(long, value_name = "GLOB")]
    name: Option<String>,
    /// Minimum value
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    min: Option<i64>,
    /// Maximum value
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max: Option<i64>,
    /// Only constants used in the kernel image or in this module
    #[arg(long, value_name = "vmlinux|MODULE")]
    used_in: Option<String>,
    /// Also literals in functions (there are many)
    #[arg(long)]
    literals: bool,
    /// Also headers shared with user space
    #[arg(long)]
    uapi: bool,
    /// Maximum number of results
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    #[command(flatten)]
    kernel: KernelArgs,
}

/// Lists them.
pub fn run(args: &Args) -> Result {
    let image = args.kernel.choice().image()?;
    let folders = Folders::from_environment();
    let paint = Paint::stderr();
    let say = |line: &str| eprintln!("{}", paint.dim(&format!("scan: {line}")));
    let tree = args.kernel.choice().tree(&image, &folders.cache, &say)?;
    let literals = args.literals || args.form.iter().any(|form| form == Written::Literal.word());
    let found = listed(&tree, args.within.as_deref(), literals, &say)?;
    let mut rows: Vec<&Listed> = found.iter().filter(|listed| args.want(listed)).collect();
    let total = rows.len();
    rows.truncate(args.limit.unwrap_or(total));
    if args.json {
        let id = image.id();
        let kernel = KernelRef { release: id.release.clone(), build_id: id.build_id.clone() };
        print_json(document(&kernel, &rows, total));
    } else {
        print!("{}", text(&rows));
        let shown = if rows.len() < total { format!(", {} of them shown", rows.len()) } else { String::new() };
        eprintln!("{}", paint.dim(&format!("{}{shown}", count(total, "candidate"))));
    }
    Ok(())
}

/// The constants in a part of the source, or in all of it, in the order of the source.
fn listed(tree: &Tree, within: Option<&str>, literals: bool, say: &dyn Fn(&str)) -> Result<Vec<Listed>> {
    let failed = |error: &dyn std::fmt::Display| Failure::error(error.to_string());
    let paths = within.map(|name| PathSet::find(tree, name)).transpose().map_err(|e| failed(&e))?;
    let survey = survey(tree, literals, say).map_err(|e| failed(&e))?;
    let inside = |listed: &Listed| paths.as_ref().is_none_or(|paths| paths.contains(&listed.id.path));
    let mut rows: Vec<Listed> = survey.named.into_iter().chain(survey.literals).filter(inside).collect();
    rows.sort_by(|a, b| (&a.id.path, a.id.line).cmp(&(&b.id.path, b.id.line)));
    Ok(rows)
}

/// The constants that `xk scan` lists there without further options, each once.
pub(super) fn candidates(tree: &Tree, within: Option<&str>, literals: bool, say: &dyn Fn(&str)) -> Result<Vec<Listed>> {
    let mut found = listed(tree, within, literals, say)?;
    let mut seen = HashSet::new();
    found.retain(|listed| !listed.is_shared_with_user_space() && seen.insert(listed.id.to_string()));
    Ok(found)
}

impl Args {
    fn want(&self, listed: &Listed) -> bool {
        let named = |words: &[String], word: &str| words.is_empty() || words.iter().any(|wanted| wanted == word);
        // Modules are named with `-` or `_`, as their files are.
        let module = |name: &str| name.replace('-', "_");
        let acts = |place: &String| listed.used_in.iter().any(|used| module(used) == module(place));
        let value = |bound: Option<i64>, fits: fn(i64, i64) -> bool| {
            bound.is_none_or(|bound| listed.value.is_some_and(|value| fits(value, bound)))
        };
        named(&self.category, listed.category.word())
            && named(&self.form, listed.written.word())
            && (self.uapi || !listed.is_shared_with_user_space())
            && self.name.as_deref().is_none_or(|pattern| glob(pattern, &listed.name))
            && self.used_in.as_ref().is_none_or(acts)
            && value(self.min, |value, bound| value >= bound)
            && value(self.max, |value, bound| value <= bound)
    }
}

/// The name of the constant. A literal has none; [`Listed::name`] is that of the code that contains it.
pub(super) fn name(listed: &Listed) -> Option<&str> {
    let literal = matches!(listed.written, Written::Literal | Written::FunctionMacro);
    (!literal).then_some(listed.name.as_str())
}

fn document(kernel: &KernelRef, rows: &[&Listed], total: usize) -> serde_json::Value {
    let rows: Vec<_> = rows
        .iter()
        .map(|listed| {
            json!({
                "id": listed.id.to_string(),
                "name": name(listed),
                "within": name(listed).is_none().then_some(&listed.name),
                "form": listed.written.word(),
                "value": listed.value,
                "type": listed.c_type.map(|c_type| c_type.name()),
                "category": listed.category.word(),
                "why": listed.why,
                "units": listed.units,
                "mentions": listed.mentions,
                "used_in": listed.used_in,
            })
        })
        .collect();
    json!({ "kernel": to_json(kernel), "total": total, "constants": rows })
}

fn text(rows: &[&Listed]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut columns = Columns::default();
    columns.row(["NAME", "VALUE", "CATEGORY", "USED IN", "WHY", "ID"].map(String::from));
    for listed in rows {
        let value = listed.value.map_or_else(|| listed.id.value.clone(), |value| value.to_string());
        columns.row([
            name(listed).map_or_else(|| format!("in {}", listed.name), str::to_owned),
            shortened(&value, 24),
            listed.category.word().to_owned(),
            place(listed),
            shortened(&listed.why.join(", "), REASONS),
            listed.id.to_string(),
        ]);
    }
    columns.lines("")
}

fn place(listed: &Listed) -> String {
    let units = if listed.units == 1 { String::new() } else { format!(" ({})", count(listed.units as usize, "unit")) };
    match &listed.used_in[..] {
        [] => "-".to_owned(),
        [only] => format!("{only}{units}"),
        [first, rest @ ..] => format!("{first}, {} more{units}", rest.len()),
    }
}

fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use clap::Parser;
    use xk_const::CType;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        Line::parse_from(["scan"].into_iter().chain(line.split_whitespace())).args
    }

    fn listed() -> [Listed; 3] {
        let batch = Listed {
            id: "mm/shrinker.c:L378:128:0".parse().unwrap(),
            name: "SHRINK_BATCH".into(),
            written: Written::Macro,
            value: Some(128),
            c_type: Some(CType::Int),
            category: Category::Batch,
            why: vec!["BATCH in its name".into(), "assigned".into()],
            units: 1,
            mentions: 1,
            used_in: vec!["vmlinux".into()],
        };
        let literal = Listed {
            id: "net/ipv4/tcp.c:L1162:16:0".parse().unwrap(),
            name: "tcp_sendmsg_locked".into(),
            written: Written::Literal,
            value: Some(16),
            category: Category::Threshold,
            why: vec!["compared with `>=`".into()],
            ..batch.clone()
        };
        let unknown = Listed {
            id: "include/uapi/a.h:L3:(A / B):0".parse().unwrap(),
            name: "A_RATIO".into(),
            value: None,
            c_type: None,
            units: 4,
            used_in: vec!["nvme-core".into(), "xfs".into()],
            ..batch.clone()
        };
        [batch, literal, unknown]
    }

    #[test]
    fn filters_choose() {
        let all = listed();
        let kept = |line: &str| -> Vec<String> {
            let args = args(line);
            all.iter().filter(|listed| args.want(listed)).map(|listed| listed.name.clone()).collect()
        };
        assert_eq!(kept(""), ["SHRINK_BATCH", "tcp_sendmsg_locked"]);
        assert_eq!(kept("--uapi").len(), 3);
        assert_eq!(kept("--category batch --category size"), ["SHRINK_BATCH"]);
        assert_eq!(kept("--form literal"), ["tcp_sendmsg_locked"]);
        assert_eq!(kept("--name *_BATCH"), ["SHRINK_BATCH"]);
        assert_eq!(kept("--min 17 --uapi"), ["SHRINK_BATCH"]);
        assert_eq!(kept("--min -5 --max 16"), ["tcp_sendmsg_locked"]);
        assert_eq!(kept("--used-in nvme_core --uapi"), ["A_RATIO"]);
        assert!(Line::try_parse_from(["scan", "--category", "nonsense"]).is_err());
    }

    #[test]
    fn golden() {
        let all = listed();
        let rows: Vec<&Listed> = all.iter().collect();
        fixture::golden("scan.txt", &text(&rows));
        let kernel = fixture::table().kernel;
        fixture::golden("scan.json", &format!("{:#}\n", document(&kernel, &rows, 7)));
    }
}
