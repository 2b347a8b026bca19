//! `xk explain`: shows a scope table.

use std::fmt::Write;

use serde_json::{json, Value};
use xk_store::{Folders, Tables};
use xk_table::{
    fit_words, listed, range_words, why_no_others, AsmLine, CriticalSpan, DataSite, Fit, Function, Indirection, Kind,
    ProbeKind, Proof, ScopeTable, When,
};

use crate::exit::Result;
use crate::options::TablesArgs;
use crate::output::{count, print_json, to_json, Paint};
use crate::{scopes, words};

/// Maximum number of compiled values that are listed.
const LISTED: usize = 32;

/// Arguments of `xk explain`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The constant
    name: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    tables: TablesArgs,
}

/// Shows it.
pub fn run(args: &Args) -> Result {
    let folders = Folders::from_environment();
    let (kernel, _) = args.tables.choose(&folders)?;
    let tables = Tables::read(&folders, &kernel.build_id)?;
    let table = tables.find(&folders, &args.name)?;
    if args.json {
        print_json(document(table));
    } else {
        print!("{}", text(table, Paint::stdout()));
    }
    Ok(())
}

fn text(table: &ScopeTable, paint: Paint) -> String {
    let mut text = String::new();
    head(&mut text, table, paint);
    for (index, span) in table.spans.iter().enumerate() {
        // `ScopeTable::check` holds for every table that was read.
        let Some(function) = table.functions.get(span.function) else { continue };
        let number = format!("span {} of {}", index + 1, table.spans.len());
        let place = place(&function.source, function.module.as_deref());
        _ = writeln!(text, "\n{}  in {}  {}\n", paint.dim(&number), paint.strong(&function.symbol), paint.dim(&place));
        assembly(&mut text, table, span, paint);
        text.push('\n');
        facts(&mut text, span, paint);
    }
    for (index, site) in table.data.iter().enumerate() {
        let number = format!("data site {} of {}", index + 1, table.data.len());
        let place = place(&site.source, site.module.as_deref());
        _ = writeln!(text, "\n{}  in {}  {}\n", paint.dim(&number), paint.strong(&site.symbol), paint.dim(&place));
        data(&mut text, site, table.constant.default, paint);
    }
    text += &scopes::text(table, paint);
    text
}

fn place(source: &str, module: Option<&str>) -> String {
    module.map_or_else(|| source.to_owned(), |module| format!("{source}, module {module}"))
}

/// An object that holds the constant.
fn data(text: &mut String, site: &DataSite, default: i64, paint: Paint) {
    let bytes = if site.width == 1 { "byte".to_owned() } else { format!("{} bytes", site.width) };
    let holds = paint.value(&held(&site.fit, default));
    let mut facts = Facts { text, paint, indent: 4 };
    facts.add("data", &[format!("{bytes} at +{:#x} in {}", site.offset, site.section)]);
    facts.add("holds", &[holds]);
    facts.add("update", &["written in place, as long as it holds what was written last; no probe".to_owned()]);
}

/// Facts, each with a name. A name without facts is omitted.
struct Facts<'a> {
    text: &'a mut String,
    paint: Paint,
    indent: usize,
}

impl Facts<'_> {
    fn add(&mut self, name: &str, lines: &[String]) {
        for (index, line) in lines.iter().enumerate() {
            let label = if index == 0 { name } else { "" };
            let label = self.paint.dim(&format!("{label:<11}"));
            _ = writeln!(self.text, "{:indent$}{label} {line}", "", indent = self.indent);
        }
    }
}

fn head(text: &mut String, table: &ScopeTable, paint: Paint) {
    let constant = &table.constant;
    _ = writeln!(text, "{}", paint.strong(constant.title()));
    _ = writeln!(text, "\n    {}\n", constant.text.trim());
    let known = constant.unit_of_measure();
    let mut facts = Facts { text, paint, indent: 2 };
    facts.add("id", std::slice::from_ref(&constant.id));
    facts.add("default", &[paint.value(&constant.default.to_string())]);
    facts.add("values", &accepted(table, paint));
    facts.add(
        "unit",
        &[match known {
            Some(known) => format!("{} ({})", known.unit.name(), known.because),
            None => "not stated by the source line: a plain number".into(),
        }],
    );
    facts.add("kernel", &[format!("{} (build-id {})", table.kernel.release, table.kernel.build_id)]);
    facts.add("seen by", &[format!("{}; {}", count(table.units.len(), "translation unit"), reaches(table))]);
}

/// The values that may be set, their proof status, and why no others.
fn accepted(table: &ScopeTable, paint: Paint) -> Vec<String> {
    let values = &table.values;
    let proved = values.proved.map(|proved| format!("{}, proved for all", paint.value(&range_words(proved))));
    let compiled = (!values.compiled.is_empty())
        .then(|| format!("{}: each compiled and compared", paint.value(&listed(&values.compiled, LISTED))));
    proved.into_iter().chain(compiled).chain(why_no_others(table)).collect()
}

/// The code and data that depend on the constant.
fn reaches(table: &ScopeTable) -> String {
    let units = table.units.iter().filter(|unit| unit.spans > 0).count();
    let code = format!("the machine code of {units}, in {}", count(table.spans.len(), "span"));
    let data = format!("{} in static objects", count(table.data.len(), "value"));
    match (table.spans.len(), table.data.len()) {
        (_, 0) => format!("the constant reaches {code}"),
        (0, _) => format!("the constant reaches {data} only"),
        _ => format!("the constant reaches {code}, and {data}"),
    }
}

/// What an instruction holds now: `-V (now -32)`.
fn held(fit: &Fit, default: i64) -> String {
    let now = Fit { width: 8, ..*fit }.apply(default) as i64;
    match fit_words(fit) {
        words if words == "V" => words,
        words => format!("{words}, now {now}"),
    }
}

fn assembly(text: &mut String, table: &ScopeTable, span: &CriticalSpan, paint: Paint) {
    let indirection = &span.indirection;
    let lines: Vec<(String, String)> = span
        .assembly
        .iter()
        .map(|line| (format!("+{:#x}", line.offset), line.text.split_whitespace().collect::<Vec<_>>().join(" ")))
        .collect();
    let offsets = lines.iter().map(|(offset, _)| offset.len()).max().unwrap_or(0);
    let width = lines.iter().map(|(_, code)| code.chars().count()).max().unwrap_or(0);
    let mark = |text: &mut String, offset: u32| {
        let here = match indirection.when {
            When::Instead => paint.good("· · · the update runs here, instead of:"),
            _ => paint.good("· · · the update runs here"),
        };
        _ = writeln!(text, "    {}  {here}", " ".repeat(offsets));
        offset
    };
    let mut marked = None;
    for (line, (offset, code)) in span.assembly.iter().zip(&lines) {
        let is_site = line.offset == indirection.offset;
        if is_site && indirection.when != When::After {
            marked = Some(mark(text, line.offset));
        }
        let note = match line.iv.and_then(|slot| span.ivs.get(slot)) {
            Some(fit) => {
                let space = " ".repeat(width - code.chars().count());
                let order = line.order.map(|order| format!(", tested for {} instead of equal", order.words()));
                format!("{space}  ◂ {}{}", held(fit, table.constant.default), order.unwrap_or_default())
            }
            None => String::new(),
        };
        let code = if note.is_empty() { code.clone() } else { paint.value(code) };
        let offset = paint.dim(&format!("{offset:>offsets$}"));
        _ = writeln!(text, "    {offset}  {code}{}", paint.value(&note));
        if is_site && indirection.when == When::After {
            marked = Some(mark(text, line.offset));
        }
    }
    if marked.is_none() {
        mark(text, indirection.offset);
    }
}

fn when(indirection: &Indirection) -> String {
    let side = match indirection.when {
        When::Before => "before",
        When::After => "after",
        When::Instead => "instead of",
    };
    let source = match indirection.kind {
        Kind::Value => "from V alone",
        Kind::Rematerialise => "from V and the remaining state",
        Kind::Invert => "by undoing the old effect and redoing it with V",
    };
    format!("{side} the instruction at +{:#x}, {source}:", indirection.offset)
}

fn probe(indirection: &Indirection) -> String {
    match (indirection.probe, &indirection.probe_reason) {
        (ProbeKind::Jump, _) => "a jump (optimised), expected".into(),
        (ProbeKind::Int3, Some(reason)) => format!("a breakpoint: {reason}"),
        (ProbeKind::Int3, None) => "a breakpoint".into(),
    }
}

/// The window for a jump; nothing if the table does not say.
fn window(indirection: &Indirection) -> Option<String> {
    if let (Some(range), lead) = (indirection.window_range(), indirection.window_lead) {
        let before = if lead == 0 { String::new() } else { format!(", {} of them before the instruction", lead) };
        return Some(format!("{} bytes from +{:#x} on{before}", indirection.window, range.start));
    }
    indirection.window_reason.as_ref().map(|reason| format!("none: {reason}"))
}

/// The instructions that can hold the value; nothing if the table does not say.
fn in_place(span: &CriticalSpan) -> Option<String> {
    if let Some(held) = &span.in_place {
        let places: Vec<String> = held.patches.iter().map(|patch| format!("+{:#x}", patch.offset)).collect();
        let Proof::Proved { solver, .. } = &held.proof;
        return Some(format!(
            "the instructions at {} can hold values {} themselves (proved by {solver})",
            places.join(", "),
            range_words(held.range)
        ));
    }
    span.in_place_reason.as_ref().map(|reason| format!("no: {reason}"))
}

fn facts(text: &mut String, span: &CriticalSpan, paint: Paint) {
    let indirection = &span.indirection;
    let mut update = vec![when(indirection)];
    let effects = words::effects(span);
    update.extend(effects.iter().map(|effect| format!("  {}", paint.value(effect))));
    update.push(paint.dim(&format!("  ({})", count(indirection.program.ops.len(), "operation"))));
    let Proof::Proved { solver, millis } = &span.proof;
    let proved = paint.good("proved");
    let proof = format!("{proved} for every machine state and every value that may be set, by {solver} in {millis} ms");
    let mut facts = Facts { text, paint, indent: 4 };
    facts.add("code", &span.expression);
    match &span.only_in_place {
        Some(reason) => facts.add("update", &[format!("none, only a patch: {reason}")]),
        None => {
            facts.add("update", &update);
            facts.add("memory", &span.visible);
            facts.add("probe", &[probe(indirection)]);
            facts.add("window", window(indirection).as_slice());
        }
    }
    facts.add("patch", in_place(span).as_slice());
    facts.add("proof", &[proof]);
}

fn document(table: &ScopeTable) -> Value {
    let known = table.constant.unit_of_measure();
    let mut fields = json!({
        "kernel": table.kernel,
        "constant": table.constant,
        "values": table.values,
        "why_no_others": why_no_others(table),
        "unit": known.map(|known| json!({ "name": known.unit.name(), "because": known.because })),
        "spans": table.spans.iter().map(|span| span_document(table, span)).collect::<Vec<_>>(),
        "data": table.data.iter().map(data_document).collect::<Vec<_>>(),
        "units": to_json(&table.units),
        "stages": table.stages,
    });
    scopes::document(table, &mut fields);
    fields
}

fn span_document(table: &ScopeTable, span: &CriticalSpan) -> Value {
    let function: Option<&Function> = table.functions.get(span.function);
    let line = |line: &AsmLine| {
        let fit = line.iv.and_then(|slot| span.ivs.get(slot));
        let mut shown = json!({ "offset": line.offset, "text": line.text, "holds": fit.map(fit_words) });
        if let Some(order) = line.order {
            shown["order"] = json!(order);
        }
        shown
    };
    let indirection = &span.indirection;
    json!({
        "function": function.map(|f| &f.symbol),
        "module": function.and_then(|f| f.module.as_ref()),
        "source": function.map(|f| &f.source),
        "start": span.start,
        "end": span.end,
        "assembly": span.assembly.iter().map(line).collect::<Vec<_>>(),
        "expression": span.expression,
        "ivs": span.ivs,
        "indirection": {
            "offset": indirection.offset,
            "when": indirection.when,
            "kind": indirection.kind,
            "probe": indirection.probe,
            "probe_reason": indirection.probe_reason,
            "window": indirection.window_range().map(|range| json!({
                "offset": range.start,
                "bytes": indirection.window,
            })),
            "window_reason": indirection.window_reason,
            "effects": words::effects(span),
            "operations": indirection.program.ops.len(),
        },
        "in_place": span.in_place,
        "in_place_reason": span.in_place_reason,
        "only_in_place": span.only_in_place,
        "visible": span.visible,
        "proof": span.proof,
    })
}

fn data_document(data: &DataSite) -> Value {
    json!({
        "symbol": data.symbol,
        "module": data.module,
        "source": data.source,
        "section": data.section,
        "offset": data.offset,
        "width": data.width,
        "holds": fit_words(&data.fit),
        "fit": data.fit,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn golden() {
        fixture::golden("explain.txt", &text(&fixture::table(), Paint::PLAIN));
        fixture::golden("explain_data.txt", &text(&fixture::data_table(), Paint::PLAIN));
        fixture::golden("explain_data.json", &format!("{:#}\n", document(&fixture::data_table())));
        fixture::golden("explain_powers.txt", &text(&fixture::powers_table(), Paint::PLAIN));
        // The input of the tests of the whole command, too.
        fixture::golden("table.json", &format!("{:#}\n", to_json(&fixture::table())));
        fixture::golden("explain.json", &format!("{:#}\n", document(&fixture::table())));
    }

    #[test]
    fn a_test_for_order_is_named() {
        let mut table = fixture::table();
        let span = &mut table.spans[0];
        let line = span.assembly.iter_mut().find(|line| line.iv.is_some()).unwrap();
        line.order = Some(xk_table::Order::AtLeast);
        let offset = line.offset;
        let shown = text(&table, Paint::PLAIN);
        let marked = shown.lines().find(|line| line.contains(", tested for at least (signed) instead of equal"));
        assert!(marked.is_some_and(|line| line.contains(&format!("+{offset:#x}"))), "{shown}");
        let told = document(&table).to_string();
        assert_eq!(told.matches("\"order\":\"at_least\"").count(), 1, "{told}");
    }

    #[test]
    fn a_constant_without_a_name_is_called_by_its_id() {
        let mut table = fixture::table();
        table.constant.name = None;
        assert!(text(&table, Paint::PLAIN).starts_with("block/blk.h:L335:32:0\n"));
    }
}
