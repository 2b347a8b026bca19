//! A table that holds is shown to hold; whatever is altered in it is found, at its
//! place. Fixtures are compiled as the kernel is, and are the deployed kernel.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use std::collections::{BTreeMap, HashSet};

use common::{compile_c, noted_c, try_compile_c};
use xk_const::CType;
use xk_sie::analyse::{conclude, Input};
use xk_sie::data::DataSeeds;
use xk_sie::identity::{Candidate, Deployed};
use xk_sie::notes::Notes;
use xk_sie::object::Object;
use xk_sie::pipeline::BuildError;
use xk_sie::proof::Solver;
use xk_sie::prototypes::Prototypes;
use xk_sie::span::Seeds;
use xk_sie::study::{Means, Study, Variant};
use xk_sie::theorem::{Compiled, Compiler, Functions, Theorem, With};
use xk_sie::verify::{against, quick, shown_again, values, At, Claim, Report};
use xk_table::{
    ConstRef, Fit, Form, InPlace, KernelRef, Mode, Op, OpCode, ProbeKind, Range, ScopeTable, Values, When, SCHEMA,
};

/// The deployed kernel is the fixture itself.
struct Itself(Vec<(String, Vec<u8>)>);

impl Deployed for Itself {
    fn candidates(&self, symbol: &str, _module: Option<&str>) -> Result<Vec<Candidate>, String> {
        let found = self.0.iter().enumerate().filter(|(_, (name, _))| name == symbol);
        let candidate =
            |i: usize| Candidate { section: ".text".into(), text_offset: i as u64 * 0x1000, address: i as u64 };
        Ok(found.map(|(i, _)| candidate(i)).collect())
    }

    fn text(&self, candidate: &Candidate, _module: Option<&str>, len: usize) -> Result<Vec<u8>, String> {
        let bytes = &self.0[candidate.address as usize].1;
        Ok(bytes[..len.min(bytes.len())].to_vec())
    }
}

/// A constant of one unit, its table, and what is needed to make both again.
struct Bench {
    text: &'static str,
    deployed: Itself,
    solver: Solver,
    noreturns: HashSet<String>,
    table: ScopeTable,
}

const DEFAULT: i64 = 32;
const FITTED: [i64; 2] = [17, 64];
const UNSEEN: [i64; 4] = [5, 10, 100, 127];

fn object(text: &str, value: i64) -> Object {
    Object::parse(&compile_c(text, &value.to_string())).unwrap()
}

impl Bench {
    fn new(text: &'static str) -> Self {
        let base = object(text, DEFAULT);
        let mut names: Vec<(String, Vec<u8>)> =
            base.functions.values().map(|f| (f.name.clone(), base.text_and_mask(f).0)).collect();
        names.extend(base.data_symbols.keys().map(|name| (name.clone(), Vec::new())));
        let table = ScopeTable {
            schema: SCHEMA,
            kernel: KernelRef { release: "test".into(), build_id: "00".into() },
            constant: ConstRef {
                id: "unit.c:L1:32:0".into(),
                name: None,
                text: String::new(),
                token: "32".into(),
                default: DEFAULT,
            },
            values: Values::proved(DEFAULT, DEFAULT),
            functions: vec![],
            spans: vec![],
            data: vec![],
            scopes: Vec::new(),
            mode: Mode::Global,
            escapes: Vec::new(),
            scoped: None,
            units: vec![],
            stages: BTreeMap::new(),
        };
        let solver = Solver::z3(10).expect("z3 is needed: apt-get install z3");
        let mut bench = Self { text, deployed: Itself(names), solver, noreturns: HashSet::new(), table };
        let studies = [bench.study(&[FITTED.as_slice(), &UNSEEN].concat())];
        let functions = [(studies[0].seeds().unwrap().clone(), studies[0].data().clone())];
        let candidates = FITTED.into_iter().chain(UNSEEN).chain([DEFAULT]).collect();
        let shown = bench.theorem(&studies, &functions, |theorem| theorem.values(&candidates).unwrap());
        let found = conclude(&bench.input(), &studies, shown).unwrap();
        bench.table.values = found.values;
        bench.table.functions = found.functions;
        bench.table.spans = found.spans;
        bench.table.data = found.data;
        bench.table.check().unwrap();
        bench
    }

    fn input(&self) -> Input<'_> {
        let Self { deployed, solver, noreturns, .. } = self;
        Input { default: DEFAULT, noreturns, deployed, solver }
    }

    fn study(&self, values: &[i64]) -> Study {
        let prototypes = Prototypes::default();
        let means =
            Means { default: DEFAULT, noreturns: &self.noreturns, prototypes: &prototypes, solver: &self.solver };
        let mut study = Study::new("unit.c".into(), None, object(self.text, DEFAULT), &prototypes);
        for &value in values {
            study.add(&means, value, Variant::Built(Box::new(object(self.text, value))));
        }
        study
    }

    /// What is found when the table is altered like this.
    fn altered(&self, alter: impl FnOnce(&mut ScopeTable)) -> Report {
        let mut table = self.table.clone();
        alter(&mut table);
        let mut report = quick(&table, &self.deployed);
        let values = values(&table);
        let studies = [self.study(&values)];
        let solvers = std::slice::from_ref(&self.solver);
        let functions = against(&self.input(), solvers, &table, &values, &studies, &mut report);
        if !functions.is_empty() {
            self.theorem(&studies, &functions, |theorem| {
                shown_again(theorem, &table, &values, &mut report).unwrap();
            });
        }
        report
    }

    /// The theorem with these functions of V.
    fn theorem<T>(
        &self,
        studies: &[Study],
        functions: &[(Seeds, DataSeeds)],
        use_it: impl FnOnce(&Theorem<'_>) -> T,
    ) -> T {
        let prototypes = Prototypes::default();
        let means =
            Means { default: DEFAULT, noreturns: &self.noreturns, prototypes: &prototypes, solver: &self.solver };
        let functions = functions.iter().map(|(code, data)| Functions { code, data }).collect();
        use_it(&Theorem { c_type: CType::Int, means, compiler: self, studies, functions, jobs: 1 })
    }

    #[track_caller]
    fn finds(&self, at: At, claim: Claim, alter: impl FnOnce(&mut ScopeTable)) {
        let report = self.altered(alter);
        let there = report.faults.iter().any(|fault| fault.at == at && fault.claim == claim);
        assert!(there, "no fault of {claim:?} at {at:?} in {:?}", report.faults);
        // A fault of one span does not blame another.
        let elsewhere = |fault: &&xk_sie::verify::Fault| matches!((fault.at, at), (At::Span(x), At::Span(y)) if x != y);
        assert!(!report.faults.iter().any(|fault| elsewhere(&fault)), "{:?}", report.faults);
    }
}

impl Compiler for Bench {
    fn compile(&self, _unit: usize, with: With) -> Result<Compiled, BuildError> {
        let (text, value) = self.text(with);
        Ok(match try_compile_c(&text, &value) {
            Ok(object) => Compiled::Object(Box::new(Object::parse(&object).unwrap())),
            Err(messages) => Compiled::Rejected(messages),
        })
    }

    fn notes(&self, _unit: usize, with: With, object: &Object) -> Result<Notes, BuildError> {
        let (text, value) = self.text(with);
        Ok(Notes::read(&noted_c(&text, &value), object))
    }
}

impl Bench {
    fn text(&self, with: With) -> (String, String) {
        match with {
            // Without its sign it is no int.
            With::Value(value) if value == i64::from(i32::MIN) => (self.text.to_owned(), "(-2147483647 - 1)".into()),
            With::Value(value) => (self.text.to_owned(), value.to_string()),
            With::Opaque => (format!("extern char xk_opaque[];\n{}", self.text), "((int)(long)xk_opaque)".into()),
        }
    }
}

const TWO: &str = "typedef unsigned int u32; typedef unsigned long u64; extern u64 g(u64), h(u64);\n\
    u64 f(u32 x) { if (x > V) return g(x); return h(x); }\n\
    u64 e(u64 x, u64 y) { return g(x + y * 3 + 2 * V); }\n";
const TWO_READINGS: &str = "extern unsigned long g(unsigned long), h(unsigned long);\n\
    unsigned long f(unsigned int *p) { if (*p > V) return g(1); return h(2); }\n";
const SELECT: &str = "extern unsigned long g(unsigned long);\n\
    unsigned long f(unsigned char c, unsigned long y) { return g(y + (c ? 2 * V : V)) + y; }\n";
/// Beyond 254 there is nothing left to compare.
const BYTE: &str = "extern unsigned long g(unsigned long), h(unsigned long);\n\
    unsigned long f(unsigned char x) { if (x > V) return g(x); return h(x); }\n";
const DATA: &str = "unsigned int limit = V; unsigned int *where(void) { return &limit; }\n";

#[test]
fn what_was_built_holds() {
    for text in [TWO, SELECT, DATA] {
        let bench = Bench::new(text);
        let report = bench.altered(|_| ());
        assert_eq!(report.faults, [], "{text}");
        assert!(report.proofs.iter().all(|proofs| proofs.len() == 1), "{text}");
        assert_eq!(report.proofs.len(), bench.table.spans.len());
    }
}

#[test]
fn an_altered_operation_is_not_proved() {
    for text in [TWO, SELECT] {
        let bench = Bench::new(text);
        for (index, span) in bench.table.spans.iter().enumerate() {
            for (at, op) in span.indirection.program.ops.iter().enumerate() {
                let meaning = matches!(op.code, OpCode::Imm | OpCode::Load | OpCode::Store | OpCode::SetFlags);
                let alter = |table: &mut ScopeTable| {
                    let op = &mut table.spans[index].indirection.program.ops[at];
                    match op.code {
                        OpCode::SetReg => op.dst ^= 1,
                        OpCode::SetFlags => op.imm ^= 0x40,
                        _ => op.imm += 1,
                    }
                };
                if meaning || op.code == OpCode::SetReg {
                    bench.finds(At::Span(index), Claim::Proof, alter);
                }
            }
        }
    }
}

#[test]
fn an_update_that_does_nothing_is_not_proved() {
    let bench = Bench::new(TWO);
    bench.finds(At::Span(0), Claim::Proof, |table| {
        let deployed = table.constant.default;
        for op in &mut table.spans[0].indirection.program.ops {
            if op.code == OpCode::Iv {
                (op.code, op.imm) = (OpCode::Imm, deployed);
            }
        }
    });
}

/// `f` in assembly.
macro_rules! assembly {
    ($before:literal, $behind:literal) => {
        concat!(
            "#define S(x) #x\n#define T(x) S(x)\nasm(\".text; .globl f; .type f,@function; f: ",
            $before,
            "\" T(V) \"",
            $behind,
            "; ret; .size f,.-f\");\n"
        )
    };
}

/// The update is right where nobody else accesses memory, and others would see it.
#[test]
fn an_update_that_others_see_at_work_is_not_proved() {
    let op = |code, width, dst, a, b| Op { code, width, dst, a, b, c: 0, imm: 0 };
    // rax is of one reading, and rdx of another.
    let bench = Bench::new(assembly!("mov (%rdi),%eax; mov %eax,%edx; and $", ",%edx"));
    assert_eq!(bench.altered(|_| ()).faults, []);
    assert!(bench.table.spans[0].indirection.program.ops.iter().all(|op| op.code != OpCode::Load));
    bench.finds(At::Span(0), Claim::Proof, |table| {
        let span = &mut table.spans[0];
        let end = table.functions[span.function].bytes.len() as u32 / 2;
        span.start = 0;
        (span.indirection.offset, span.indirection.insn_len) = (end - 1, 1);
        span.indirection.when = When::Before;
        span.indirection.program.ops = vec![
            op(OpCode::Reg, 8, 0, 7, 0),
            op(OpCode::Load, 4, 1, 0, 0),
            op(OpCode::Iv, 4, 2, 0, 0),
            op(OpCode::And, 4, 3, 1, 2),
            op(OpCode::SetReg, 4, 2, 3, 0),
        ];
    });
    // The default is in memory until the update runs.
    let bench = Bench::new(assembly!("movl $", ",(%rdi); xor %eax,%eax; xor %edx,%edx"));
    assert_eq!(bench.altered(|_| ()).faults, []);
    assert_eq!(bench.table.spans[0].indirection.when, When::Instead);
    bench.finds(At::Span(0), Claim::Proof, |table| table.spans[0].indirection.when = When::After);
    // One access becomes two, whoever comes between.
    let bench = Bench::new(assembly!("addl $", ",%gs:(%rdi); xor %eax,%eax; xor %edx,%edx"));
    assert_eq!(bench.altered(|_| ()).faults, []);
    assert!(bench.table.spans[0].only_in_place.is_some());
    bench.finds(At::Span(0), Claim::Proof, |table| table.spans[0].only_in_place = None);
    let report = bench.altered(|table| table.spans[0].in_place = None);
    assert!(report.at(At::Table).any(|fault| fault.claim == Claim::Coherence), "{:?}", report.faults);
}

#[test]
fn what_is_read_again_is_said() {
    let bench = Bench::new(TWO_READINGS);
    assert_eq!(bench.altered(|_| ()).faults, []);
    assert!(!bench.table.spans[0].visible.is_empty(), "{:?}", bench.table.spans);
    bench.finds(At::Span(0), Claim::Proof, |table| table.spans[0].visible.clear());
}

#[test]
fn altered_numbers_in_instructions_are_found() {
    for text in [TWO, SELECT] {
        let bench = Bench::new(text);
        let held: Vec<usize> =
            (0..bench.table.spans.len()).filter(|&i| bench.table.spans[i].in_place.is_some()).collect();
        assert!(!held.is_empty(), "{:?}", bench.table.spans);
        for index in held {
            let alter = |change: &dyn Fn(&mut InPlace)| {
                let change = |table: &mut ScopeTable| change(table.spans[index].in_place.as_mut().unwrap());
                bench.altered(change).of_span(&bench.table, index).cloned().collect::<Vec<_>>()
            };
            assert_eq!(alter(&|_| ()), []);
            // Coherent by themselves, and not what is there.
            for change in [
                &(|held: &mut InPlace| held.patches[0].width = if held.patches[0].width == 4 { 8 } else { 4 })
                    as &dyn Fn(&mut InPlace),
                &|held: &mut InPlace| held.patches.truncate(held.patches.len() - 1),
                &|held: &mut InPlace| held.patches[0].field -= 1,
            ] {
                let mut table = bench.table.clone();
                change(table.spans[index].in_place.as_mut().unwrap());
                let faults = bench.altered(|altered| *altered = table.clone()).faults;
                let about = |fault: &xk_sie::verify::Fault| {
                    fault.detail.contains("in place") || fault.claim == Claim::Coherence
                };
                assert!(faults.iter().any(about), "{faults:?}");
            }
            // More room than there is.
            let wider = |held: &mut InPlace| held.range.max = bench.table.values.hull().max.max(held.range.max + 1);
            let mut table = bench.table.clone();
            wider(table.spans[index].in_place.as_mut().unwrap());
            if table.spans[index].in_place != bench.table.spans[index].in_place {
                assert!(!bench.altered(|altered| *altered = table.clone()).faults.is_empty());
            }
        }
    }
}

#[test]
fn another_byte_is_another_function() {
    let bench = Bench::new(TWO);
    let function = bench.table.spans[0].function;
    let at = bench.table.functions[function].mask.find("ff").unwrap();
    bench.finds(At::Function(function), Claim::Identity, |table| {
        let bytes = &mut table.functions[function].bytes;
        let other = if bytes[at..].starts_with('0') { "1" } else { "0" };
        bytes.replace_range(at..=at, other);
    });
    bench.finds(At::Function(function), Claim::Identity, |table| {
        table.functions[function].mask.replace_range(at..at + 2, "00");
    });
    bench.finds(At::Function(function), Claim::Identity, |table| table.functions[function].text_offset += 1);
}

/// What is in place is wrong, too, and is found first.
fn forget_numbers(table: &mut ScopeTable) {
    for span in &mut table.spans {
        span.in_place = None;
    }
}

#[test]
fn a_fit_that_predicts_something_else_is_named() {
    for text in [TWO, SELECT] {
        let bench = Bench::new(text);
        for index in 0..bench.table.spans.len() {
            let predict = |change: fn(&mut Fit)| {
                bench.finds(At::Span(index), Claim::Validation, |table| {
                    forget_numbers(table);
                    change(&mut table.spans[index].ivs[0]);
                });
            };
            predict(|fit| fit.b += 1);
            predict(|fit| fit.a += 1);
            predict(|fit| fit.form = Form::Quotient(2));
        }
    }
}

#[test]
fn a_probe_elsewhere_is_not_proved() {
    let bench = Bench::new(TWO);
    for delta in [-1i64, 1, 3] {
        bench.finds(At::Span(0), Claim::Proof, |table| {
            let indirection = &mut table.spans[0].indirection;
            indirection.offset = (i64::from(indirection.offset) + delta).max(0) as u32;
        });
    }
    bench.finds(At::Span(0), Claim::Proof, |table| table.spans[0].indirection.when = When::Instead);
    let jumps = bench.table.spans.iter().any(|span| span.indirection.probe == ProbeKind::Jump);
    let breaks = bench.table.spans.iter().position(|span| span.indirection.probe == ProbeKind::Int3);
    assert!(jumps || breaks.is_some());
    if let Some(index) = breaks {
        bench.finds(At::Span(index), Claim::Probe, |table| table.spans[index].indirection.probe = ProbeKind::Jump);
    }
}

#[test]
fn values_that_cannot_agree_are_refused() {
    let bench = Bench::new(BYTE);
    let Range { min, max } = bench.table.values.proved.unwrap();
    assert_eq!((min, max), (0, 255));
    let claim = |values: Values| {
        bench.finds(At::Table, Claim::Values, |table| {
            forget_numbers(table);
            table.values = values.clone();
        });
    };
    claim(Values::proved(min, 300));
    claim(Values::proved(-1, max));
    let compiled = |table: &mut ScopeTable| {
        forget_numbers(table);
        table.values = Values { compiled: vec![300], ..Values::proved(min, max) };
    };
    bench.finds(At::Table, Claim::Validation, compiled);
    // Less than what was shown is not wrong.
    let less = |table: &mut ScopeTable| {
        forget_numbers(table);
        table.values = Values::proved(min + 1, max - 1);
    };
    assert_eq!(bench.altered(less).faults, []);
}

#[test]
fn compiled_values_do_not_stand_for_others() {
    let bench = Bench::new(TWO);
    let Range { min, max } = bench.table.values.proved.unwrap();
    let tested = values(&bench.table);
    assert!(tested.iter().any(|value| value.count_ones() != 1), "{tested:?}");
    assert!(tested.contains(&min) && tested.contains(&max) && !tested.contains(&DEFAULT), "{tested:?}");
    let mut table = bench.table.clone();
    table.values = Values::compiled([8, 16, DEFAULT, 64, 128]);
    assert_eq!(values(&table), [8, 16, 64, 128]);
    table.values = Values { compiled: vec![512], ..Values::proved(32, 33) };
    assert_eq!(values(&table), [33, 512]);
}

#[test]
fn a_missing_span_or_site_is_incomplete() {
    let bench = Bench::new(TWO);
    bench.finds(At::Table, Claim::Completeness, |table| _ = table.spans.pop());
    bench.finds(At::Span(0), Claim::Validation, |table| {
        table.spans[0].ivs[0] = Fit { width: 2, ..table.spans[0].ivs[0] };
    });
    let bench = Bench::new(DATA);
    bench.finds(At::Data(0), Claim::Validation, |table| table.data[0].fit.b += 1);
    bench.finds(At::Data(0), Claim::Validation, |table| table.data[0].offset += 4);
    bench.finds(At::Data(0), Claim::Identity, |table| table.data[0].section_offset += 8);
}

#[test]
fn a_table_that_makes_no_sense_is_not_followed() {
    let bench = Bench::new(TWO);
    bench.finds(At::Table, Claim::Coherence, |table| table.spans[0].function = 7);
    let report = bench.altered(|table| table.spans[0].indirection.program.ops.clear());
    assert!(report.at(At::Table).any(|fault| fault.claim == Claim::Coherence), "{:?}", report.faults);
    assert!(report.proofs.iter().all(Vec::is_empty));
}
