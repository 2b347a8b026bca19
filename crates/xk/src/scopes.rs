//! Safe spans in words: where a thread is under the influence of a value, which
//! transition a change needs, and what no transition covers.

use std::fmt::Write;

use serde_json::{json, Value};
use xk_table::{Escape, Exit, ExitKind, Mode, Scope, ScopeTable};

use crate::output::{count, to_json, Paint};

/// Maximum number of escapes that are shown; `--json` has all of them.
const SHOWN: usize = 12;

/// A summary of a table in one line.
pub fn line(table: &ScopeTable) -> String {
    let instructions: u32 = table.scopes.iter().map(|scope| scope.instructions).sum();
    let spans = count(table.scopes.len(), "safe span");
    let size = count(instructions as usize, "instruction");
    let escapes = match table.escapes.len() {
        0 => String::new(),
        n => format!(", {}", count(n, "escape")),
    };
    format!("transition {}; {spans}, {size}{escapes}", table.mode)
}

fn promise(mode: Mode) -> &'static str {
    match mode {
        Mode::Now => "at once: every value is consumed where it is read",
        Mode::Task => "thread by thread: values stay on the stack of the thread that read the constant",
        Mode::Global => "when no thread is inside: a value passes through memory",
    }
}

/// The safe spans of a table, for people.
pub fn text(table: &ScopeTable, paint: Paint) -> String {
    let mut text = String::new();
    let mode = paint.value(&table.mode.to_string());
    _ = writeln!(text, "\n{}  {mode}, {}", paint.dim("transition"), promise(table.mode));
    for scope in &table.scopes {
        // `ScopeTable::check` holds for every table that was read.
        let Some(function) = table.functions.get(scope.function) else { continue };
        let module = function.module.as_deref().map_or_else(String::new, |module| format!(", module {module}"));
        let spans: Vec<String> = scope.spans.iter().map(|span| (span + 1).to_string()).collect();
        let of = format!("of span {}{module}", spans.join(", "));
        _ = writeln!(text, "\n{}  in {}  {}\n", paint.dim("safe span"), paint.strong(&function.symbol), paint.dim(&of));
        let mut add = |name: &str, line: &str| {
            _ = writeln!(text, "    {} {line}", paint.dim(&format!("{name:<11}")));
        };
        add("inside", &inside(scope));
        if let Some(why) = &scope.whole {
            add("whole", &format!("the function could not be followed: {why}"));
        }
        for (index, exit) in scope.exits.iter().enumerate() {
            add(if index == 0 { "left" } else { "" }, &left(exit));
        }
    }
    escapes(&mut text, &table.escapes, paint);
    text
}

fn inside(scope: &Scope) -> String {
    let ranges: Vec<String> = scope.ranges.iter().map(|[start, end]| format!("+{start:#x} to +{end:#x}")).collect();
    let size = match scope.instructions {
        0 => String::new(),
        n => format!(": {}", count(n as usize, "instruction")),
    };
    format!("{}{size}", ranges.join(", "))
}

fn left(exit: &Exit) -> String {
    let to = exit.to.as_deref();
    let how = match exit.kind {
        ExitKind::Dead => "where the value is dead".to_owned(),
        ExitKind::Branch => format!("by a branch to {}", to.unwrap_or("?")),
        ExitKind::Return => "by a return".to_owned(),
        ExitKind::Tail => format!("to {}, which takes over the frame", to.unwrap_or("a function that is not known")),
        ExitKind::Noreturn => format!("into {}, which does not return", to.unwrap_or("a function")),
    };
    format!("after +{:#x} {how}", exit.offset)
}

fn escapes(text: &mut String, escapes: &[Escape], paint: Paint) {
    if escapes.is_empty() {
        return;
    }
    _ = writeln!(text, "\n{}  no transition covers the values stored here:\n", paint.dim("escapes"));
    for Escape { place, field, reason } in escapes.iter().take(SHOWN) {
        _ = writeln!(text, "    {field}\n      {}", paint.dim(&format!("{place}: {reason}")));
    }
    if let Some(more @ 1..) = escapes.len().checked_sub(SHOWN) {
        _ = writeln!(text, "    and {more} more, see --json");
    }
}

/// The safe spans of a table, for programs.
pub fn document(table: &ScopeTable, fields: &mut Value) {
    let scope = |scope: &Scope| {
        let function = table.functions.get(scope.function);
        json!({
            "function": function.map(|f| &f.symbol),
            "module": function.and_then(|f| f.module.as_ref()),
            "spans": scope.spans,
            "ranges": scope.ranges,
            "instructions": scope.instructions,
            "exits": scope.exits,
            "whole": scope.whole,
        })
    };
    fields["mode"] = to_json(&table.mode);
    fields["scopes"] = table.scopes.iter().map(scope).collect();
    fields["escapes"] = to_json(&table.escapes);
}
