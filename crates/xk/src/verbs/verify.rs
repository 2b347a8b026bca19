//! `xk verify`: checks again whether tables hold for a kernel, from the deployed code and its source alone.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::{json, Value};
use xk_analysis::pipeline::{BuildError, Options};
use xk_analysis::proof::Solver;
use xk_analysis::verify::{self, At, Claim, Fault, Proved, Report};
use xk_const::{recall, Spec};
use xk_kernel::{Image, Tree};
use xk_span::confine::wrong_windows;
use xk_store::{Folders, Tables};
use xk_table::{KernelRef, ScopeTable, StoreError};

use crate::exit::{Exit, Failure, Result};
use crate::extend::SOLVER_SECONDS;
use crate::options::KernelArgs;
use crate::output::{count, print_json, to_json, values, Paint};
use crate::progress::Progress;

/// Arguments of `xk verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
For every span and data site: the deployed bytes are the analysed ones (identity); values that may be set,
compiled again, give what it predicts (validation) and depend on the constant nowhere else (completeness);
the table's own operations do what another value would have done, for every state and every value that may
be set (proof). --quick shows identity only, and needs no source.")]
pub struct Args {
    /// The constants
    #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "NAME")]
    names: Vec<String>,
    /// All tables of the kernel
    #[arg(long)]
    all: bool,
    /// Compare bytes only: compiles and proves nothing
    #[arg(long, conflicts_with_all = ["solver", "jobs"])]
    quick: bool,
    /// A second solver; it must agree
    #[arg(long, value_name = "SOLVER", value_parser = ["cvc5"])]
    solver: Option<String>,
    /// Also compile and compare these values
    #[arg(
        long,
        value_name = "V",
        value_delimiter = ',',
        allow_negative_numbers = true,
        conflicts_with_all = ["quick", "all"]
    )]
    at: Vec<i64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Number of parallel compilers (default: number of processors)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    #[command(flatten)]
    kernel: KernelArgs,
}

/// A table, and its result.
struct Verified<'a> {
    table: &'a ScopeTable,
    /// Further values, given by --at.
    at: &'a [i64],
    result: Result<Report>,
}

/// Verifies them, one after the other.
pub fn run(args: &Args) -> Result {
    let image = args.kernel.choice().image()?;
    let folders = Folders::from_environment();
    let tables = Tables::read(&folders, &image.id().build_id)?;
    let wanted: Vec<&ScopeTable> = if args.all {
        tables.good.iter().collect()
    } else {
        args.names.iter().map(|name| Ok(tables.find(&folders, name)?)).collect::<Result<_>>()?
    };
    let kernel = KernelRef { release: image.id().release.clone(), build_id: image.id().build_id.clone() };
    if wanted.is_empty() && tables.bad.is_empty() {
        let message = format!("no scope tables for kernel {}: run `xk build NAME`", kernel.release);
        return Err(Failure::error(message));
    }
    let verifier = if args.quick { None } else { Some(TableVerifier::open(args, &image, &folders)?) };
    let paint = Paint::stdout();
    let mut all = Vec::new();
    for table in wanted {
        let result = match &verifier {
            Some(verifier) => verifier.verify(table, &image, &args.at),
            None => Ok(verify::quick(table, &image)),
        };
        let verified = Verified { table, at: &args.at, result };
        if !args.json {
            print!("{}", verified.text(args.quick, paint));
        }
        all.push(verified);
    }
    let unreadable: &[Arc<StoreError>] = if args.all { &tables.bad } else { &[] };
    if args.json {
        print_json(document(&kernel, args.quick, &all, unreadable));
    } else {
        print!("{}", summary(&all, unreadable, paint));
    }
    match exit(&all, unreadable) {
        None => Ok(()),
        // The output has shown it.
        Some(exit) => Err(Failure::told(exit)),
    }
}

/// Verifies all tables of the command line: one source tree, and the solvers.
struct TableVerifier {
    tree: Tree,
    solvers: Vec<Solver>,
    objects: std::path::PathBuf,
    jobs: usize,
}

impl TableVerifier {
    fn open(args: &Args, image: &Image, folders: &Folders) -> Result<Self> {
        let failed = |error: xk_analysis::proof::ProofError| Failure::error(error.to_string());
        let mut solvers = vec![Solver::z3(SOLVER_SECONDS).map_err(failed)?];
        if args.solver.is_some() {
            solvers.push(Solver::cvc5(SOLVER_SECONDS).map_err(failed)?);
        }
        let paint = Paint::stderr();
        let say = |line: &str| eprintln!("{}", paint.dim(&format!("prepare: {line}")));
        let tree = args.kernel.choice().tree(image, &folders.cache, &say)?;
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let jobs = args.jobs.map_or(processors, usize::from);
        Ok(Self { tree, solvers, objects: folders.cache.join("objects"), jobs })
    }

    fn verify(&self, table: &ScopeTable, image: &Image, at: &[i64]) -> Result<Report> {
        let progress = Progress::new(table.constant.title());
        let say = |line: &str| progress.say(line);
        let options = Options { cache: &self.objects, jobs: self.jobs, progress: &say };
        let constant = recall(&self.tree, &Spec::parse(&table.constant.id)?)?;
        let report = verify::verify(&self.tree, image, &constant, table, &self.solvers, at, &options);
        progress.end();
        let mut report = report.map_err(|error| match error {
            BuildError::Refused(refusal) => refusal.into(),
            other => Failure::error(other.to_string()),
        })?;
        let wrong = wrong_windows(image, table).map_err(|error| Failure::error(error.to_string()))?;
        report.faults.extend(wrong.into_iter().map(|(span, detail)| Fault {
            at: At::Span(span),
            claim: Claim::Probe,
            detail,
        }));
        Ok(report)
    }
}

impl Verified<'_> {
    /// The code of this table alone.
    fn exit(&self) -> Option<Exit> {
        let report = match &self.result {
            Ok(report) => report,
            Err(failure) => return Some(failure.exit),
        };
        let claims: Vec<Claim> = report.faults.iter().map(|fault| fault.claim).collect();
        if claims.contains(&Claim::Identity) {
            Some(Exit::Drift)
        } else if claims.contains(&Claim::Coherence) {
            Some(Exit::Error)
        } else {
            (!claims.is_empty()).then_some(Exit::Refused)
        }
    }

    /// What to do about a fault.
    fn advice(&self) -> Option<String> {
        let id = &self.table.constant.id;
        Some(match self.exit()? {
            Exit::Drift => {
                format!("not what was analysed: `xk build {id}` makes a table for this kernel, or says why not")
            }
            _ if self.result.is_err() => "nothing is verified until this is fixed".to_owned(),
            _ => format!("do not set it: `xk build {id}` makes a new table, or says why not"),
        })
    }

    fn text(&self, quick: bool, paint: Paint) -> String {
        let table = self.table;
        let mut text = String::new();
        let compiled = match &self.result {
            Ok(report) if !quick => format!(", {} compiled again", count(report.values.len(), "value")),
            _ => String::new(),
        };
        let constant = &table.constant;
        let facts = format!("default {}, values {}{compiled}", constant.default, values(&table.values));
        _ = writeln!(text, "{}  {}", paint.strong(constant.title()), paint.dim(&facts));
        let report = match &self.result {
            Ok(report) => report,
            Err(failure) => {
                _ = writeln!(text, "  {}  {}", paint.bad("NOT VERIFIED"), failure.message);
                advise(&mut text, self.advice(), paint);
                return text;
            }
        };
        let rows = self.rows(report, quick);
        let width = rows.iter().map(|row| row.place.chars().count()).max().unwrap_or(0);
        for row in &rows {
            let verdict = match &row.shown {
                _ if !row.faults.is_empty() => paint.bad("WRONG"),
                Some(shown) => format!("{}  {}", paint.good("ok"), paint.dim(shown)),
                None => paint.warning("not checked"),
            };
            let padding = " ".repeat(width - row.place.chars().count());
            _ = writeln!(text, "  {}{padding}  {verdict}", row.place);
            for fault in &row.faults {
                _ = writeln!(text, "      {}: {}", fault.claim.word(), fault.detail);
            }
        }
        for &value in self.at {
            let verdict = match self.verdict(report, value) {
                (true, None) => format!("{}  {}", paint.good("ok"), paint.dim("accepted; compiled, and the same")),
                (false, None) => {
                    format!(
                        "{}  {}",
                        paint.warning("not accepted"),
                        paint.dim("compiled, and the same: `xk set` accepts it")
                    )
                }
                (false, Some(why)) => format!("{}  {why}", paint.warning("not accepted")),
                (true, Some(why)) if report.inconclusive.contains_key(&value) => {
                    let proved = "accepted and proved; the code compiled with it is not shown to do the same";
                    format!("{}  {}", paint.good("ok"), paint.dim(&format!("{proved}: {why}")))
                }
                (true, Some(why)) => format!("{}  {why}", paint.bad("WRONG")),
            };
            _ = writeln!(text, "  value {value}  {verdict}");
        }
        advise(&mut text, self.advice(), paint);
        text
    }

    /// Whether the table accepts a value, and why it is not the same as compiled, if it is not.
    fn verdict<'a>(&self, report: &'a Report, value: i64) -> (bool, Option<&'a str>) {
        let accepted = self.table.values.contains(value);
        let refused = report.refused.get(&value).or_else(|| report.inconclusive.get(&value)).map(String::as_str);
        let agrees = report.agreeing.contains(&value);
        (accepted, refused.or((!agrees).then_some("it does not agree, or was not compared")))
    }

    /// One line for every span and data site, and one for the table if there is something to say.
    fn rows<'a>(&'a self, report: &'a Report, quick: bool) -> Vec<Row<'a>> {
        let table = self.table;
        let whole: Vec<&Fault> = report.at(At::Table).collect();
        let whole = (!whole.is_empty()).then(|| Row { place: "the table".into(), shown: None, faults: whole });
        let spans = table.spans.iter().enumerate().map(|(index, span)| {
            let symbol = table.functions.get(span.function).map_or("?", |function| function.symbol.as_str());
            let proofs = proofs(report, index);
            let proved: Vec<String> =
                proofs.iter().map(|proof| format!("{} in {} ms", proof.solver, proof.millis)).collect();
            let shown = match proved.join(", ") {
                _ if quick => Some("same bytes".to_owned()),
                proved => (!proved.is_empty()).then(|| format!("same bytes, proved by {proved}")),
            };
            let faults = report.of_span(table, index).collect();
            Row { place: format!("{symbol}+{:#x}", span.indirection.offset), shown, faults }
        });
        let data = table.data.iter().enumerate().map(|(index, data)| {
            let shown = match report.values.len() {
                _ if quick => Some("data, there".to_owned()),
                0 => None,
                values => Some(format!("data, as predicted for {}", count(values, "value"))),
            };
            let faults = report.at(At::Data(index)).collect();
            Row { place: format!("{}+{:#x}", data.symbol, data.offset), shown, faults }
        });
        whole.into_iter().chain(spans).chain(data).collect()
    }

    fn document(&self) -> Value {
        let table = self.table;
        let empty = Report::default();
        let (report, failure) = match &self.result {
            Ok(report) => (report, None),
            Err(failure) => (&empty, Some(failure.json()["error"].clone())),
        };
        let told = |faults: Vec<&Fault>| -> Vec<Value> {
            faults.iter().map(|fault| json!({ "claim": fault.claim.word(), "detail": fault.detail })).collect()
        };
        let span = |(index, span): (usize, &xk_table::CriticalSpan)| {
            let function = table.functions.get(span.function);
            let faults: Vec<&Fault> = report.of_span(table, index).collect();
            let proofs: Vec<Value> = proofs(report, index)
                .iter()
                .map(|proof| json!({ "solver": proof.solver, "millis": proof.millis }))
                .collect();
            json!({
                "function": function.map(|f| &f.symbol),
                "module": function.and_then(|f| f.module.as_ref()),
                "offset": span.indirection.offset,
                "ok": failure.is_none() && faults.is_empty(),
                "faults": told(faults),
                "proofs": proofs,
            })
        };
        let data = |(index, data): (usize, &xk_table::DataSite)| {
            let faults: Vec<&Fault> = report.at(At::Data(index)).collect();
            json!({
                "symbol": data.symbol,
                "module": data.module,
                "offset": data.offset,
                "ok": failure.is_none() && faults.is_empty(),
                "faults": told(faults),
            })
        };
        json!({
            "id": table.constant.id,
            "name": table.constant.name,
            "ok": self.exit().is_none(),
            "faults": told(report.at(At::Table).collect()),
            "spans": table.spans.iter().enumerate().map(span).collect::<Vec<_>>(),
            "data": table.data.iter().enumerate().map(data).collect::<Vec<_>>(),
            "values": report.values,
            "at": self.at.iter().map(|&value| {
                let (accepted, why) = self.verdict(report, value);
                json!({ "value": value, "accepted": accepted, "agrees": why.is_none(), "why": why })
            }).collect::<Vec<_>>(),
            "error": failure,
            "advice": self.advice(),
        })
    }
}

/// A span or data site.
struct Row<'a> {
    place: String,
    /// What was shown, if anything.
    shown: Option<String>,
    faults: Vec<&'a Fault>,
}

fn proofs(report: &Report, span: usize) -> &[Proved] {
    report.proofs.get(span).map_or(&[], |proofs| proofs)
}

fn advise(text: &mut String, advice: Option<String>, paint: Paint) {
    if let Some(advice) = advice {
        _ = writeln!(text, "  {}", paint.warning(&advice));
    }
}

/// The exit code for all tables: theirs if they agree.
fn exit(all: &[Verified<'_>], unreadable: &[Arc<StoreError>]) -> Option<Exit> {
    let unread = unreadable.iter().map(|error| match **error {
        StoreError::OtherKernel { .. } => Exit::Drift,
        _ => Exit::Error,
    });
    let mut exits = all.iter().filter_map(Verified::exit).chain(unread);
    let first = exits.next()?;
    Some(if exits.all(|exit| exit == first) { first } else { Exit::Error })
}

fn summary(all: &[Verified<'_>], unreadable: &[Arc<StoreError>], paint: Paint) -> String {
    let mut text = String::new();
    for error in unreadable {
        _ = writeln!(text, "{}  {error}", paint.bad("UNREADABLE"));
    }
    let sum = |number: fn(&ScopeTable) -> usize| all.iter().map(|verified| number(verified.table)).sum();
    let wrong: Vec<&str> =
        all.iter().filter(|v| v.exit().is_some()).map(|verified| verified.table.constant.title()).collect();
    let verdict = match (wrong.len(), unreadable.len()) {
        (0, 0) => paint.good("all ok"),
        (_, 0) => paint.bad(&format!("{} not ok: {}", wrong.len(), wrong.join(", "))),
        (0, bad) => paint.bad(&format!("{} unreadable", count(bad, "table"))),
        (_, bad) => {
            paint.bad(&format!("{} not ok: {}; {} unreadable", wrong.len(), wrong.join(", "), count(bad, "table")))
        }
    };
    _ = writeln!(
        text,
        "{}, {}, {}: {verdict}",
        count(all.len(), "table"),
        count(sum(|table| table.spans.len()), "span"),
        count(sum(|table| table.data.len()), "data site"),
    );
    text
}

fn document(kernel: &KernelRef, quick: bool, all: &[Verified<'_>], unreadable: &[Arc<StoreError>]) -> Value {
    json!({
        "kernel": to_json(kernel),
        "quick": quick,
        "ok": exit(all, unreadable).is_none(),
        "exit": exit(all, unreadable).map_or(0, |exit| exit as u8),
        "tables": all.iter().map(Verified::document).collect::<Vec<_>>(),
        "unreadable": unreadable.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn good() -> Report {
        let proved = |millis| vec![Proved { solver: "z3 version 4.8.12".into(), millis }];
        Report {
            faults: vec![],
            proofs: vec![proved(31), proved(12)],
            values: vec![1, 33, 64, 7, 127],
            ..Report::default()
        }
    }

    fn wrong() -> Report {
        let fault = |at, claim, detail: &str| Fault { at, claim, detail: detail.into() };
        let mut report = good();
        report.proofs[0].clear();
        report.faults = vec![
            fault(
                At::Span(0),
                Claim::Proof,
                "the update at +0x59 is wrong for some state and value (z3 version 4.8.12)",
            ),
            fault(At::Table, Claim::Values, "1..=100 is claimed, and values agree from 1 to 64 only"),
        ];
        report
    }

    /// An undecided value is neither right nor wrong. A value that the table does not accept is no fault.
    #[test]
    fn each_value_gets_the_verdict_that_was_found() {
        let mut table = fixture::table();
        table.values = xk_table::Values::proved(1, 100);
        let why = |text: &str| text.to_owned();
        let report = Report {
            agreeing: [40].into(),
            inconclusive: [(50, why("the solver gave up"))].into(),
            refused: [(60, why("88 against 89")), (200, why("another shape"))].into(),
            ..good()
        };
        let verified = Verified { table: &table, at: &[40, 50, 60, 70, 200], result: Ok(report) };
        let text = verified.text(false, Paint::PLAIN);
        for line in [
            "value 40  ok  accepted; compiled, and the same",
            "value 50  ok  accepted and proved; the code compiled with it is not shown to do the same: the solver gave up",
            "value 60  WRONG  88 against 89",
            "value 70  WRONG  it does not agree, or was not compared",
            "value 200  not accepted  another shape",
        ] {
            assert!(text.lines().any(|found| found.trim() == line), "no line `{line}` in\n{text}");
        }
    }

    #[test]
    fn golden() {
        let table = fixture::table();
        let drift = Report {
            faults: vec![Fault {
                at: At::Function(1),
                claim: Claim::Identity,
                detail: "example_full+0x12: the table has byte 90, the deployed kernel cc".into(),
            }],
            ..Report::default()
        };
        let all = [Ok(good()), Ok(wrong()), Ok(drift), Err(Failure::error("the source is not installed"))]
            .map(|result| Verified { table: &table, at: &[], result });
        let mut shown: String = all.iter().map(|verified| verified.text(false, Paint::PLAIN)).collect();
        shown += &summary(&all, &[], Paint::PLAIN);
        fixture::golden("verify.txt", &shown);
        fixture::golden("verify.json", &format!("{:#}\n", document(&table.kernel, false, &all, &[])));
        assert_eq!(
            all.each_ref().map(Verified::exit),
            [None, Some(Exit::Refused), Some(Exit::Drift), Some(Exit::Error)]
        );
        assert_eq!(exit(&all[..1], &[]), None);
        assert_eq!(exit(&all[..2], &[]), Some(Exit::Refused));
        assert_eq!(exit(&all, &[]), Some(Exit::Error));
    }
}
