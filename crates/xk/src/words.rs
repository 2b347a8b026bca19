//! The operations of an update in words: temporaries are folded into the
//! expressions that use them, so that one line says what one effect is.

use xk_analysis::words::fit_words;
use xk_table::{AsmLine, CriticalSpan, Fit, Form, Op, OpCode, STATUS_FLAGS};

/// One line per register, flag group or memory cell that the update writes.
///
/// Expects a program that [`xk_table::Program::check`] accepts; an invalid operation is shown as `?`.
pub fn effects(span: &CriticalSpan) -> Vec<String> {
    let mut temps: Vec<Expression> = vec![Expression::atom("?"); usize::from(u8::MAX) + 1];
    let mut lines = Vec::new();
    for op in &span.indirection.program.ops {
        match op.code {
            OpCode::SetReg => {
                let register = register(op.dst, op.width, false);
                lines.push(format!("{register} = {}", temps[usize::from(op.a)].text));
            }
            OpCode::SetFlags => {
                let value = &temps[usize::from(op.a)].text;
                lines.push(if op.imm as u64 == STATUS_FLAGS {
                    format!("flags = {value}")
                } else {
                    format!("flags {} = those of {value}", flag_names(op.imm as u64))
                });
            }
            OpCode::Store => {
                let (address, value) = (&temps[usize::from(op.a)], &temps[usize::from(op.b)]);
                lines.push(format!("{} = {}", memory(address, op), value.text));
            }
            _ => temps[usize::from(op.dst)] = expression(op, &temps, span),
        }
    }
    lines
}

/// The name of a register at a width.
pub fn register(number: u8, width: u8, high: bool) -> String {
    const NAMES: [&str; 8] = ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di"];
    match (NAMES.get(usize::from(number)), width) {
        (Some(name), 8) => format!("r{name}"),
        (Some(name), 4) => format!("e{name}"),
        (Some(name), 1) if number < 4 => format!("{}{}", &name[..1], if high { "h" } else { "l" }),
        (Some(name), 1) => format!("{name}l"),
        (Some(name), _) => (*name).to_owned(),
        (None, 8) => format!("r{number}"),
        (None, 4) => format!("r{number}d"),
        (None, 1) => format!("r{number}b"),
        (None, _) => format!("r{number}w"),
    }
}

#[derive(Debug, Clone)]
struct Expression {
    text: String,
    /// Needs no parentheses.
    atom: bool,
    /// What was compared, if these are the flags of a comparison.
    compared: Option<(String, String)>,
    /// The transformed value that this is.
    fit: Option<Fit>,
    /// The symbol and the offset that it is the address of.
    symbol: Option<(String, i64)>,
    /// The number that it is.
    number: Option<i64>,
    /// It is relative to this CPU's own data.
    per_cpu: bool,
}

impl Expression {
    fn atom(text: impl Into<String>) -> Self {
        let (compared, fit, symbol, number) = (None, None, None, None);
        Self { text: text.into(), atom: true, compared, fit, symbol, number, per_cpu: false }
    }

    fn compound(text: String) -> Self {
        Self { atom: false, ..Self::atom(text) }
    }

    fn value(fit: Fit) -> Self {
        let text = fit_words(&fit);
        Self { atom: !text.contains(' '), fit: Some(fit), ..Self::atom(text) }
    }

    /// `&jiffies`, `&.bss + 4`.
    fn address(symbol: String, offset: i64) -> Self {
        let text = match offset {
            0 => format!("&{symbol}"),
            _ if offset < 0 => format!("&{symbol} - {}", number(offset.saturating_neg())),
            _ => format!("&{symbol} + {}", number(offset)),
        };
        Self { atom: offset == 0, symbol: Some((symbol, offset)), ..Self::atom(text) }
    }

    fn inner(&self) -> String {
        if self.atom {
            self.text.clone()
        } else {
            format!("({})", self.text)
        }
    }
}

fn expression(op: &Op, temps: &[Expression], span: &CriticalSpan) -> Expression {
    use OpCode as C;
    let [a, b, c] = [op.a, op.b, op.c].map(|t| &temps[usize::from(t)]);
    let infix = |sign: &str| Expression::compound(format!("{} {sign} {}", a.inner(), b.inner()));
    match op.code {
        C::Iv => match usize::try_from(op.imm).ok().and_then(|slot| span.ivs.get(slot)) {
            Some(fit) => Expression::value(*fit),
            None => Expression::atom("?"),
        },
        C::Imm => Expression { number: Some(op.imm), ..Expression::atom(number(op.imm)) },
        C::Reg => Expression::atom(register(op.a, op.width, op.b == 1)),
        C::Flags => Expression::atom("flags"),
        C::Load => Expression::atom(memory(a, op)),
        C::Add => sum(a, b).unwrap_or_else(|| infix("+")),
        C::Sub if a.text == "0" => Expression::atom(format!("-{}", b.inner())),
        C::Sub => infix("-"),
        C::Mul => infix("·"),
        C::And => infix("&"),
        C::Or => infix("|"),
        C::Xor => infix("^"),
        C::Shl => infix("<<"),
        C::Shr => infix(">>"),
        C::Sar => infix(">> (signed)"),
        C::Not => Expression::atom(format!("~{}", a.inner())),
        C::Neg => match a.fit {
            Some(fit) if fit.form == Form::Linear => {
                Expression::value(Fit { a: fit.a.wrapping_neg(), b: fit.b.wrapping_neg(), ..fit })
            }
            _ => Expression::atom(format!("-{}", a.inner())),
        },
        C::Sext => Expression::atom(format!("signed({})", a.text)),
        C::Eq => infix("=="),
        C::Ult => infix("<"),
        C::Slt => infix("< (signed)"),
        C::Select => Expression::compound(format!("{} ? {} : {}", a.inner(), b.inner(), c.inner())),
        C::FlagsAdd => Expression::compound(format!("flags of {} + {}", a.inner(), b.inner())),
        C::FlagsSub => Expression {
            compared: Some((a.inner(), b.inner())),
            ..Expression::compound(format!("compare {} with {}", a.inner(), b.inner()))
        },
        C::FlagsLogic => Expression::compound(format!("flags of {}", a.inner())),
        C::Cond => condition(op.imm, a),
        C::Text => match link(&span.assembly, op.imm) {
            Some((symbol, offset)) => Expression::address(symbol, offset),
            None => Expression::atom(format!("address at +{:#x}", op.imm)),
        },
        C::PerCpu => Expression { per_cpu: true, ..Expression::atom("this CPU's data") },
        C::SetReg | C::SetFlags | C::Store => Expression::atom("?"),
    }
}

/// Sums that are shown in another form: addresses of symbols, and of per-CPU data.
fn sum(a: &Expression, b: &Expression) -> Option<Expression> {
    if let (Some((symbol, offset)), Some(number)) = (&a.symbol, b.number) {
        let offset = offset.checked_add(number)?;
        return Some(Expression { per_cpu: a.per_cpu, ..Expression::address(symbol.clone(), offset) });
    }
    match (a.per_cpu, b.per_cpu) {
        (false, true) => Some(Expression { per_cpu: true, ..a.clone() }),
        (true, false) => Some(Expression { per_cpu: true, ..b.clone() }),
        _ => None,
    }
}

/// The symbol whose address the linker wrote at `offset` of the function: the line of
/// the instruction there shows it as `# jiffies+0x0`.
fn link(assembly: &[AsmLine], offset: i64) -> Option<(String, i64)> {
    let line = assembly.iter().rfind(|line| i64::from(line.offset) <= offset)?;
    let shown = line.text.split_once("  # ")?.1;
    let (symbol, plus) = shown.rsplit_once(['+', '-'])?;
    let number = i64::from_str_radix(plus.strip_prefix("0x")?, 16).ok()?;
    let negative = shown.as_bytes().get(symbol.len()) == Some(&b'-');
    Some((symbol.to_owned(), if negative { number.saturating_neg() } else { number }))
}

/// `4 bytes at [rdi + 0x10]`.
fn memory(address: &Expression, op: &Op) -> String {
    let bytes = if op.width == 1 { "byte".to_owned() } else { format!("{} bytes", op.width) };
    let bytes = if address.per_cpu { format!("this CPU's {bytes}") } else { bytes };
    if let Some((symbol, offset)) = &address.symbol {
        let whole = Expression::address(symbol.clone(), offset.saturating_add(op.imm));
        return format!("{bytes} at [{}]", whole.text);
    }
    match op.imm {
        0 => format!("{bytes} at [{}]", address.text),
        displacement if displacement < 0 => {
            format!("{bytes} at [{} - {}]", address.text, number(-displacement))
        }
        displacement => format!("{bytes} at [{} + {}]", address.text, number(displacement)),
    }
}

fn number(value: i64) -> String {
    if value.unsigned_abs() < 1024 {
        value.to_string()
    } else if value < 0 {
        format!("-{:#x}", value.unsigned_abs())
    } else {
        format!("{value:#x}")
    }
}

/// A condition code: a comparison of what was compared, or of the flags themselves.
fn condition(code: i64, flags: &Expression) -> Expression {
    const COMPARED: [&str; 16] = ["", "", "<", ">=", "==", "!=", "<=", ">", "", "", "", "", "<", ">=", "<=", ">"];
    const FLAGS: [&str; 16] = [
        "overflow",
        "no overflow",
        "carry",
        "no carry",
        "zero",
        "not zero",
        "carry or zero",
        "no carry and not zero",
        "negative",
        "not negative",
        "even parity",
        "odd parity",
        "less",
        "not less",
        "less or equal",
        "greater",
    ];
    let Some(index) = usize::try_from(code).ok().filter(|&index| index < 16) else { return Expression::atom("?") };
    match &flags.compared {
        Some((a, b)) if !COMPARED[index].is_empty() => {
            let signed = if index >= 12 { " (signed)" } else { "" };
            Expression::compound(format!("{a} {}{signed} {b}", COMPARED[index]))
        }
        _ if flags.text == "flags" => Expression::compound(FLAGS[index].to_owned()),
        _ => Expression::compound(format!("{} in {}", FLAGS[index], flags.text)),
    }
}

fn flag_names(mask: u64) -> String {
    const NAMES: [(u64, &str); 6] = [(0x1, "CF"), (0x4, "PF"), (0x10, "AF"), (0x40, "ZF"), (0x80, "SF"), (0x800, "OF")];
    let names: Vec<&str> = NAMES.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, name)| *name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use xk_table::Program;

    fn effects(program: &Program, ivs: &[Fit]) -> Vec<String> {
        words_of(program, ivs, &[])
    }

    /// Of a span with these operations and lines.
    fn words_of(program: &Program, ivs: &[Fit], lines: &[(u32, &str)]) -> Vec<String> {
        let mut span = crate::fixture::table().spans.remove(0);
        span.indirection.program = program.clone();
        span.ivs = ivs.to_vec();
        let line = |&(offset, text): &(u32, &str)| AsmLine { offset, text: text.into(), iv: None, order: None };
        span.assembly = lines.iter().map(line).collect();
        super::effects(&span)
    }

    fn op(code: OpCode, width: u8, dst: u8, [a, b, c]: [u8; 3], imm: i64) -> Op {
        Op { code, width, dst, a, b, c, imm }
    }

    fn fit(a: i64, b: i64) -> Fit {
        Fit::linear(a, b, 4)
    }

    #[test]
    fn a_select_is_one_line() {
        let program = Program {
            ops: vec![
                op(OpCode::Reg, 1, 0, [1, 0, 0], 0),
                op(OpCode::Imm, 1, 1, [0; 3], 1),
                op(OpCode::Ult, 1, 2, [0, 1, 0], 0),
                op(OpCode::Iv, 4, 3, [0; 3], 0),
                op(OpCode::Iv, 4, 4, [0; 3], 1),
                op(OpCode::Select, 4, 5, [2, 3, 4], 0),
                op(OpCode::SetReg, 4, 0, [5, 0, 0], 0),
            ],
        };
        assert_eq!(effects(&program, &[fit(1, 0), fit(2, 0)]), ["eax = (cl < 1) ? V : 2·V"]);
    }

    #[test]
    fn flags_memory_and_conditions_have_words() {
        let program = Program {
            ops: vec![
                op(OpCode::Reg, 8, 0, [7, 0, 0], 0),
                op(OpCode::Load, 4, 1, [0; 3], 0x10),
                op(OpCode::Iv, 4, 2, [0; 3], 0),
                op(OpCode::FlagsSub, 4, 3, [1, 2, 0], 0),
                op(OpCode::SetFlags, 8, 0, [3, 0, 0], STATUS_FLAGS as i64),
                op(OpCode::Cond, 1, 4, [3, 0, 0], 15),
                op(OpCode::SetReg, 1, 8, [4, 0, 0], 0),
                op(OpCode::Store, 2, 0, [0, 2, 0], -0x800),
                op(OpCode::SetFlags, 8, 0, [3, 0, 0], 0x41),
            ],
        };
        let compared = "compare 4 bytes at [rdi + 16] with (V - 1)";
        assert_eq!(
            effects(&program, &[fit(1, -1)]),
            [
                format!("flags = {compared}"),
                "r8b = 4 bytes at [rdi + 16] > (signed) (V - 1)".into(),
                "2 bytes at [rdi - 0x800] = V - 1".into(),
                format!("flags CF, ZF = those of {compared}"),
            ]
        );
    }

    #[test]
    fn addresses_are_called_by_their_symbols() {
        let at = |offset: i64| Program {
            ops: vec![
                op(OpCode::Text, 8, 0, [0, 1, 4], offset),
                op(OpCode::Load, 4, 1, [0; 3], 8),
                op(OpCode::Imm, 8, 2, [0; 3], -4),
                op(OpCode::Add, 8, 3, [0, 2, 0], 0),
                op(OpCode::Store, 8, 0, [3, 1, 0], 0),
            ],
        };
        let lines = [
            (0x10, "mov 0x1915,%ebx  # jiffies+0x0"),
            (0x16, "cmpl $0x12c,0x2253  # .bss+0x4"),
            (0x20, "mov $0,%rdi  # \"a+b\"-0x8"),
            (0x27, "ret"),
        ];
        let words = |offset: i64| words_of(&at(offset), &[], &lines);
        assert_eq!(words(0x12), ["8 bytes at [&jiffies - 4] = 4 bytes at [&jiffies + 8]"]);
        assert_eq!(words(0x18), ["8 bytes at [&.bss] = 4 bytes at [&.bss + 12]"]);
        assert_eq!(words(0x23), ["8 bytes at [&\"a+b\" - 12] = 4 bytes at [&\"a+b\"]"]);
        assert_eq!(words(0x27)[0], "8 bytes at [address at +0x27 + -4] = 4 bytes at [address at +0x27 + 8]");
        assert_eq!(words(0x2), words_of(&at(0x2), &[], &[]));
    }

    #[test]
    fn data_of_a_processor_is_said_to_be() {
        let program = Program {
            ops: vec![
                op(OpCode::Reg, 8, 0, [0; 3], 0),
                op(OpCode::PerCpu, 8, 1, [0; 3], 0),
                op(OpCode::Add, 8, 2, [0, 1, 0], 0),
                op(OpCode::Load, 8, 3, [2, 0, 0], 8),
                op(OpCode::SetReg, 8, 3, [3, 0, 0], 0),
                op(OpCode::Text, 8, 4, [0, 1, 0], 2),
                op(OpCode::Add, 8, 5, [1, 4, 0], 0),
                op(OpCode::Store, 1, 0, [5, 3, 0], 0),
            ],
        };
        let lines = [(0, "inc %gs:0x1915  # this_count+0x0")];
        assert_eq!(
            words_of(&program, &[], &lines),
            [
                "rbx = this CPU's 8 bytes at [rax + 8]",
                "this CPU's byte at [&this_count] = this CPU's 8 bytes at [rax + 8]"
            ]
        );
    }

    #[test]
    fn a_malformed_program_is_no_reason_to_fail() {
        let program =
            Program { ops: vec![op(OpCode::SetReg, 4, 0, [200, 0, 0], 0), op(OpCode::Cond, 1, 255, [9; 3], 99)] };
        assert_eq!(effects(&program, &[]), ["eax = ?"]);
    }

    #[test]
    fn registers_have_their_names() {
        let names = [(0, 8, false), (0, 1, true), (6, 1, false), (5, 2, false), (9, 4, false), (15, 1, false)];
        assert_eq!(names.map(|(n, w, h)| register(n, w, h)), ["rax", "ah", "sil", "bp", "r9d", "r15b"]);
    }
}
