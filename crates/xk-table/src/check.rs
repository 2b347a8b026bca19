//! Whether a table is coherent. In: a table, as anybody may have written it. Out: nothing, or
//! a sentence that names the first violation. Whoever reads a table asks this first.

use crate::ops::{Op, OpCode, MAX_IVS, MAX_PATCHES};
use crate::scopes::Mode;
use crate::types::{CriticalSpan, Fit, Indirection, ScopeTable};
use crate::values::Range;

impl ScopeTable {
    /// Whether the table is coherent: indices in range, bytes and masks of one
    /// length, programs well-formed, the default among the values.
    ///
    /// # Errors
    /// A sentence that names the first violation.
    pub fn check(&self) -> Result<(), String> {
        self.values.check(self.constant.default)?;
        if self.spans.is_empty() && self.data.is_empty() {
            return Err("no critical span, and no data".into());
        }
        for data in &self.data {
            if ![1, 2, 4, 8].contains(&data.width) || data.fit.width != data.width {
                return Err(format!("{}+{:#x}: a value of {} bytes", data.symbol, data.offset, data.width));
            }
            if !data.fit.form.is_defined() {
                let form = data.fit.form;
                return Err(format!("{}+{:#x}: the form {form:?} has no meaning", data.symbol, data.offset));
            }
        }
        for function in &self.functions {
            let (bytes, mask) = (function.text()?, function.text_mask()?);
            if bytes.len() != mask.len() {
                return Err(format!("{}: {} bytes but a mask of {}", function.symbol, bytes.len(), mask.len()));
            }
        }
        for (i, span) in self.spans.iter().enumerate() {
            self.check_span(span).map_err(|why| format!("span {i}: {why}"))?;
        }
        self.check_only_in_place()?;
        self.check_scopes()
    }

    /// Where one span takes no update, none of the table's values may need one.
    fn check_only_in_place(&self) -> Result<(), String> {
        let Some(reason) = self.only_in_place() else { return Ok(()) };
        if let Some(i) = self.spans.iter().position(|span| span.in_place.is_none()) {
            return Err(format!("span {i} needs an update, and another allows none: {reason}"));
        }
        let hull = self.values.hull();
        match self.in_place_range() {
            Some(room) if room.contains(hull.min) && room.contains(hull.max) => Ok(()),
            _ => Err(format!("some of {} need an update, and a span allows none: {reason}", self.values)),
        }
    }

    fn check_span(&self, span: &CriticalSpan) -> Result<(), String> {
        let function = self.functions.get(span.function).ok_or_else(|| format!("no function {}", span.function))?;
        let length = function.bytes.len() / 2;
        let end = span.indirection.offset as usize + span.indirection.insn_len as usize;
        if end > length || span.start >= span.end || span.start > span.indirection.offset {
            return Err(format!("lies outside {}", function.symbol));
        }
        span.indirection.check_window()?;
        if let Some(fit) = span.ivs.iter().find(|fit| !fit.form.is_defined()) {
            return Err(format!("a value of the form {:?}, which has no meaning", fit.form));
        }
        if span.ivs.len() > MAX_IVS || span.ivs.iter().any(|fit| ![1, 2, 4, 8].contains(&fit.width)) {
            return Err(format!("more than {MAX_IVS} values, or one that is not 1, 2, 4 or 8 bytes wide"));
        }
        self.check_order(span)?;
        self.check_in_place(span, length as u64)?;
        let program = &span.indirection.program;
        program.check(span.ivs.len()).map_err(|error| error.to_string())?;
        let beyond = |op: &&Op| op.code == OpCode::Text && op.imm > length as i64 - 4;
        match program.ops.iter().find(beyond) {
            Some(op) => Err(format!("reads {} at {:#x}, beyond its end", function.symbol, op.imm)),
            None => Ok(()),
        }
    }

    /// What tests for order does so with a value, by an update, and never changes at once.
    fn check_order(&self, span: &CriticalSpan) -> Result<(), String> {
        let Some(line) = span.assembly.iter().find(|line| line.order.is_some()) else { return Ok(()) };
        let wrong = |why: &str| Err(format!("the instruction at {:#x} is to test for order, and {why}", line.offset));
        match span {
            _ if line.iv.is_none() => wrong("holds no value"),
            CriticalSpan { in_place: Some(_), .. } => wrong("no number in it does"),
            _ if self.mode == Mode::Now => wrong("a number may be alive that has passed the value"),
            _ => Ok(()),
        }
    }

    /// The function has `length` bytes.
    fn check_in_place(&self, span: &CriticalSpan, length: u64) -> Result<(), String> {
        let Some(in_place) = &span.in_place else { return Ok(()) };
        let Range { min, max } = in_place.range;
        let (default, whole) = (self.constant.default, self.values.hull());
        if in_place.patches.is_empty() || in_place.patches.len() > MAX_PATCHES || span.in_place_reason.is_some() {
            return Err(format!("{} instructions that hold the value", in_place.patches.len()));
        }
        if !(min <= default && default <= max && whole.min <= min && max <= whole.max) {
            return Err(format!("values {} in its instructions are no part of {}", in_place.range, self.values));
        }
        let mut behind = u64::from(span.start);
        for patch in &in_place.patches {
            let end = u64::from(patch.offset) + u64::from(patch.insn_len);
            let Some(fit) = span.ivs.get(patch.iv) else { return Err(format!("no value {}", patch.iv)) };
            let widths = [patch.size, patch.width].iter().all(|bytes| [1, 2, 4, 8].contains(bytes));
            let inside = patch.field > 0
                && u32::from(patch.field) + u32::from(patch.size) <= u32::from(patch.insn_len)
                && behind <= u64::from(patch.offset)
                && end <= u64::from(span.end).min(length);
            let room = |value| patch.has_room(Fit { width: 8, ..*fit }.apply(value));
            if !widths || patch.size > patch.width || !inside || ![min, max, default].into_iter().all(room) {
                return Err(format!("the instruction at {:#x} does not hold value {}", patch.offset, patch.iv));
            }
            behind = end;
        }
        Ok(())
    }
}

impl Indirection {
    fn check_window(&self) -> Result<(), String> {
        let Some(window) = self.window_range() else {
            let none = self.window == 0 && self.window_lead == 0;
            return if none { Ok(()) } else { Err("a window that begins before its function".into()) };
        };
        let whole = window.contains(&self.offset) && self.offset + u32::from(self.insn_len) <= window.end;
        if !(5..=15).contains(&self.window) || !whole || self.window_reason.is_some() {
            return Err(format!("a window of {} bytes that cannot be one", self.window));
        }
        Ok(())
    }
}
