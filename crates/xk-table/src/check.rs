//! Whether a table is coherent. In: a table, as anybody may have written it. Out: nothing, or
//! the first violation. Whoever reads a table asks this first.

use crate::fit::Fit;
use crate::incoherent::{BadValues, Incoherent, ScopeFault, SpanFault};
use crate::ops::{Op, OpCode, MAX_IVS, MAX_PATCHES};
use crate::scopes::{Mode, Scope};
use crate::types::{CriticalSpan, Indirection, ScopeTable};
use crate::values::{Range, Values, MAX_VALUES};

impl ScopeTable {
    /// Whether the table is coherent: indices in range, bytes and masks of one
    /// length, programs well-formed, the default among the values.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<(), Incoherent> {
        self.values.check(self.constant.default)?;
        if self.spans.is_empty() && self.data.is_empty() {
            return Err(Incoherent::Empty);
        }
        for data in &self.data {
            if ![1, 2, 4, 8].contains(&data.width) || data.fit.width != data.width {
                let (symbol, offset, width) = (data.symbol.clone(), data.offset, data.width);
                return Err(Incoherent::DataWidth { symbol, offset, width });
            }
            if !data.fit.form.is_defined() {
                let (symbol, offset, form) = (data.symbol.clone(), data.offset, data.fit.form);
                return Err(Incoherent::DataForm { symbol, offset, form });
            }
        }
        for function in &self.functions {
            let (bytes, mask) = (function.text()?, function.text_mask()?);
            if bytes.len() != mask.len() {
                let (symbol, bytes, mask) = (function.symbol.clone(), bytes.len(), mask.len());
                return Err(Incoherent::MaskLength { symbol, bytes, mask });
            }
        }
        for (index, span) in self.spans.iter().enumerate() {
            self.check_span(span).map_err(|fault| Incoherent::Span { span: index, fault })?;
        }
        self.check_only_in_place()?;
        self.check_scopes()
    }

    /// Where one span takes no update, none of the table's values may need one.
    fn check_only_in_place(&self) -> Result<(), Incoherent> {
        let Some(reason) = self.only_in_place() else { return Ok(()) };
        let reason = reason.to_owned();
        if let Some(span) = self.spans.iter().position(|span| span.in_place.is_none()) {
            return Err(Incoherent::NeedsUpdate { span, reason });
        }
        let hull = self.values.hull();
        match self.in_place_range() {
            Some(room) if room.contains(hull.min) && room.contains(hull.max) => Ok(()),
            _ => Err(Incoherent::ValuesNeedUpdate { values: self.values.clone().into(), reason }),
        }
    }

    fn check_span(&self, span: &CriticalSpan) -> Result<(), SpanFault> {
        let function = self.functions.get(span.function).ok_or(SpanFault::NoFunction(span.function))?;
        let length = function.bytes.len() / 2;
        let end = span.indirection.offset as usize + span.indirection.insn_len as usize;
        if end > length || span.start >= span.end || span.start > span.indirection.offset {
            return Err(SpanFault::Outside(function.symbol.clone()));
        }
        span.indirection.check_window()?;
        if let Some(fit) = span.ivs.iter().find(|fit| !fit.form.is_defined()) {
            return Err(SpanFault::Form(fit.form));
        }
        if span.ivs.len() > MAX_IVS || span.ivs.iter().any(|fit| ![1, 2, 4, 8].contains(&fit.width)) {
            return Err(SpanFault::Ivs);
        }
        self.check_order(span)?;
        self.check_in_place(span, length as u64)?;
        let program = &span.indirection.program;
        program.check(span.ivs.len())?;
        let beyond = |op: &&Op| op.code == OpCode::Text && op.imm > length as i64 - 4;
        match program.ops.iter().find(beyond) {
            Some(op) => Err(SpanFault::TextBeyond { symbol: function.symbol.clone(), offset: op.imm }),
            None => Ok(()),
        }
    }

    /// What tests for order does so with a value, by an update, and never changes at once.
    fn check_order(&self, span: &CriticalSpan) -> Result<(), SpanFault> {
        let Some(line) = span.assembly.iter().find(|line| line.order.is_some()) else { return Ok(()) };
        let wrong = |why| Err(SpanFault::Order { offset: line.offset, why });
        match span {
            _ if line.iv.is_none() => wrong("holds no value"),
            CriticalSpan { in_place: Some(_), .. } => wrong("no number in it does"),
            _ if self.mode == Mode::Now => wrong("a number may be alive that has passed the value"),
            _ => Ok(()),
        }
    }

    /// The function has `length` bytes.
    fn check_in_place(&self, span: &CriticalSpan, length: u64) -> Result<(), SpanFault> {
        let Some(in_place) = &span.in_place else { return Ok(()) };
        let Range { min, max } = in_place.range;
        let (default, whole) = (self.constant.default, self.values.hull());
        if in_place.patches.is_empty() || in_place.patches.len() > MAX_PATCHES || span.in_place_reason.is_some() {
            return Err(SpanFault::InPlaceCount(in_place.patches.len()));
        }
        if !(min <= default && default <= max && whole.min <= min && max <= whole.max) {
            return Err(SpanFault::InPlaceRange { range: in_place.range, values: self.values.clone().into() });
        }
        let mut behind = u64::from(span.start);
        for patch in &in_place.patches {
            let end = u64::from(patch.offset) + u64::from(patch.insn_len);
            let Some(fit) = span.ivs.get(patch.iv) else { return Err(SpanFault::NoIv(patch.iv)) };
            let widths = [patch.size, patch.width].iter().all(|bytes| [1, 2, 4, 8].contains(bytes));
            let inside = patch.field > 0
                && u32::from(patch.field) + u32::from(patch.size) <= u32::from(patch.insn_len)
                && behind <= u64::from(patch.offset)
                && end <= u64::from(span.end).min(length);
            let room = |value| patch.has_room(Fit { width: 8, ..*fit }.apply(value));
            if !widths || patch.size > patch.width || !inside || ![min, max, default].into_iter().all(room) {
                return Err(SpanFault::NoRoom { offset: patch.offset, iv: patch.iv });
            }
            behind = end;
        }
        Ok(())
    }

    /// Whether the scopes are coherent: indices and ranges inside their functions,
    /// and every critical span inside a scope.
    fn check_scopes(&self) -> Result<(), Incoherent> {
        for (index, scope) in self.scopes.iter().enumerate() {
            let faulty = |fault| Incoherent::Scope { scope: index, fault };
            let function =
                self.functions.get(scope.function).ok_or_else(|| faulty(ScopeFault::NoFunction(scope.function)))?;
            let mut last = None;
            for &[start, end] in &scope.ranges {
                let behind = last.is_none_or(|last| start > last);
                if start >= end || !behind || end as usize > function.bytes.len() / 2 {
                    return Err(faulty(ScopeFault::Range { symbol: function.symbol.clone(), start, end }));
                }
                last = Some(end);
            }
            if scope.ranges.is_empty() {
                return Err(faulty(ScopeFault::NoRange));
            }
            if scope.spans.is_empty() || scope.spans.iter().any(|&span| span >= self.spans.len()) {
                return Err(faulty(ScopeFault::NoSpan));
            }
            if let Some(exit) = scope.exits.iter().find(|exit| !scope.contains(exit.offset)) {
                return Err(faulty(ScopeFault::Exit(exit.offset)));
            }
        }
        let open = self.spans.iter().enumerate().find(|(i, span)| {
            let holds = |scope: &Scope| {
                scope.function == span.function && scope.spans.contains(i) && scope.contains(span.start)
            };
            !self.scopes.is_empty() && !self.scopes.iter().any(holds)
        });
        match open {
            Some((span, _)) => Err(Incoherent::Span { span, fault: SpanFault::InNoScope }),
            None => Ok(()),
        }
    }
}

impl Values {
    /// Whether they are coherent for a constant with this default.
    pub(crate) fn check(&self, default: i64) -> Result<(), BadValues> {
        if let Some(range) = self.proved.filter(|range| range.min > range.max) {
            return Err(BadValues::Range(range));
        }
        if self.compiled.len() > MAX_VALUES {
            return Err(BadValues::TooMany(self.compiled.len()));
        }
        if let Some(pair) = self.compiled.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(BadValues::Order(pair[0], pair[1]));
        }
        let proved = |value: &&i64| self.proved.is_some_and(|range| range.contains(**value));
        if let Some(value) = self.compiled.iter().find(proved) {
            return Err(BadValues::Twice(*value));
        }
        if let Some(value) = self.refused.keys().find(|&&value| self.contains(value)) {
            return Err(BadValues::RefusedAndAccepted(*value));
        }
        if !self.contains(default) {
            return Err(BadValues::NoDefault { default, values: self.clone().into() });
        }
        if self.hull() == Range::of(default, default) {
            return Err(BadValues::OnlyDefault(default));
        }
        Ok(())
    }
}

impl Indirection {
    fn check_window(&self) -> Result<(), SpanFault> {
        let Some(window) = self.window_range() else {
            let none = self.window == 0 && self.window_lead == 0;
            return if none { Ok(()) } else { Err(SpanFault::WindowBefore) };
        };
        let whole = window.contains(&self.offset) && self.offset + u32::from(self.insn_len) <= window.end;
        if !(5..=15).contains(&self.window) || !whole || self.window_reason.is_some() {
            return Err(SpanFault::Window(self.window));
        }
        Ok(())
    }
}
