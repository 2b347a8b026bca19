//! Tables on disk: what was written is what is read; everything else is an
//! error that says what to do.

#![allow(clippy::unwrap_used, missing_docs)]

use xk_table::{
    AsmLine, ConstRef, CriticalSpan, DataSite, Exit, ExitKind, Fit, Form, Function, InPlace, Indirection, KernelRef,
    Kind, Mode, Op, OpCode, OpError, Order, Patch, ProbeKind, Program, Proof, Range, Scope, ScopeTable, Store,
    StoreError, Values, When, SCHEMA,
};

const BUILD: &str = "0123abcd";
const ID: &str = "block/blk.h:L335:32:0";

fn op(code: OpCode, width: u8, dst: u8, a: u8) -> Op {
    Op { code, width, dst, a, b: 0, c: 0, imm: 0 }
}

fn table() -> ScopeTable {
    let program = Program { ops: vec![op(OpCode::Iv, 4, 0, 0), op(OpCode::SetReg, 4, 0, 0)] };
    ScopeTable {
        schema: SCHEMA,
        kernel: KernelRef { release: "6.12.0".into(), build_id: BUILD.into() },
        constant: ConstRef {
            id: ID.into(),
            name: Some("BLK_MAX_REQUEST_COUNT".into()),
            text: "#define BLK_MAX_REQUEST_COUNT 32".into(),
            token: "32".into(),
            default: 32,
        },
        values: Values::proved(1, 1000),
        functions: vec![Function {
            symbol: "f".into(),
            module: None,
            text_offset: 0x1000,
            section: ".text".into(),
            bytes: "b820000000c3".into(),
            mask: "ffffffffffff".into(),
            source: "block/blk.c".into(),
        }],
        spans: vec![CriticalSpan {
            function: 0,
            start: 0,
            end: 5,
            assembly: vec![],
            expression: vec!["eax = V".into()],
            ivs: vec![Fit::linear(1, 0, 4)],
            indirection: Indirection {
                offset: 5,
                insn_len: 1,
                when: When::Before,
                kind: Kind::Value,
                probe: ProbeKind::Int3,
                probe_reason: Some("too short".into()),
                window: 0,
                window_lead: 0,
                window_reason: None,
                program,
            },
            proof: Proof::Proved { solver: "z3".into(), millis: 1 },
            in_place: None,
            in_place_reason: None,
            only_in_place: None,
            visible: Vec::new(),
        }],
        data: Vec::new(),
        scopes: vec![scope()],
        mode: Mode::Global,
        escapes: Vec::new(),
        scoped: None,
        units: vec![],
        stages: Default::default(),
    }
}

#[test]
fn what_is_saved_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    let path = store.save(&table()).unwrap();
    assert_eq!(store.load(BUILD, ID).unwrap(), table());
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left behind");
    assert!(matches!(store.load(BUILD, "other"), Err(StoreError::Missing { .. })));
    assert!(matches!(store.load("beef", ID), Err(StoreError::Missing { .. })));
    let (good, bad) = store.list(BUILD).unwrap();
    assert_eq!((good.len(), bad.len()), (1, 0));
}

#[test]
fn what_is_not_whole_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    let path = store.save(&table()).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    for len in 0..text.trim_end().len() {
        std::fs::write(&path, &text.as_bytes()[..len]).unwrap();
        assert!(Store::read(&path).is_err(), "the first {len} bytes");
    }
    std::fs::write(&path, text.replace("\"schema\": 2", "\"schema\": 99")).unwrap();
    assert!(matches!(Store::read(&path), Err(StoreError::Schema { found: 99, .. })));
    // A table in the place of another is not the other.
    std::fs::write(&path, text.replace(BUILD, "beefbeef")).unwrap();
    assert!(matches!(store.load(BUILD, ID), Err(StoreError::OtherKernel { .. })));
    std::fs::write(&path, text.replace(ID, "block/blk.h:L336:32:0")).unwrap();
    assert!(matches!(store.load(BUILD, ID), Err(StoreError::Corrupt { .. })));
    let (good, bad) = store.list(BUILD).unwrap();
    assert_eq!((good.len(), bad.len()), (1, 0), "whole, but for another constant");
}

fn data() -> DataSite {
    DataSite {
        symbol: "queue_limits".into(),
        module: None,
        section: ".data".into(),
        section_offset: 0x1800,
        offset: 8,
        width: 4,
        fit: Fit::linear(1, 0, 4),
        source: "block/blk-settings.c".into(),
    }
}

#[test]
fn a_constant_may_act_in_data_only() {
    let mut table = table();
    table.spans.clear();
    table.scopes.clear();
    table.functions.clear();
    table.data = vec![data()];
    assert_eq!(table.check(), Ok(()));
    let text = serde_json::to_string(&table).unwrap();
    assert_eq!(serde_json::from_str::<ScopeTable>(&text).unwrap(), table);
    // Tables that were written before there was data are read.
    table.data.clear();
    let mut value = serde_json::to_value(&table).unwrap();
    assert!(value.as_object_mut().unwrap().remove("data").is_some());
    assert_eq!(serde_json::from_value::<ScopeTable>(value).unwrap(), table);
}

fn of_form(form: Form) -> Fit {
    Fit { form, ..Fit::linear(1, 0, 4) }
}

/// The address that a field of the function at `at` refers to.
fn text(at: i64) -> Op {
    Op { imm: at, ..op(OpCode::Text, 8, 1, 0) }
}

/// One violation of coherence.
type Break = (&'static str, fn(&mut ScopeTable));

fn ordered() -> AsmLine {
    AsmLine { offset: 0, text: "cmp".into(), iv: Some(0), order: Some(Order::AtLeast) }
}

#[test]
fn incoherent_tables_are_refused() {
    assert_eq!(table().check(), Ok(()));
    let mut orders = table();
    orders.spans[0].assembly = vec![ordered()];
    orders.mode = Mode::Task;
    assert_eq!(orders.check(), Ok(()));
    let mut reads = table();
    reads.spans[0].indirection.program.ops.insert(0, text(2));
    assert_eq!(reads.check(), Ok(()));
    let broken: [Break; 22] = [
        ("default not among the values", |t| t.values = Values::proved(33, 1000)),
        ("no spans", |t| t.spans.clear()),
        ("mask of another length", |t| t.functions[0].mask.truncate(4)),
        ("bytes that are not hex", |t| t.functions[0].bytes = "+1+1+1+1+1+1".into()),
        ("no such function", |t| t.spans[0].function = 1),
        ("outside the function", |t| t.spans[0].indirection.offset = 6),
        ("empty span", |t| t.spans[0].end = 0),
        ("no such value", |t| t.spans[0].ivs.clear()),
        ("too many values", |t| t.spans[0].ivs = vec![Fit::linear(1, 0, 4); 9]),
        ("odd width", |t| t.spans[0].ivs[0].width = 9),
        ("odd data", |t| t.data = vec![DataSite { width: 3, ..data() }]),
        ("data of another width", |t| t.data = vec![DataSite { width: 8, ..data() }]),
        ("division by zero", |t| t.spans[0].ivs[0].form = Form::Quotient(0)),
        ("shift by the whole width", |t| t.spans[0].ivs[0].form = Form::Power(64)),
        ("division by zero in data", |t| t.data = vec![DataSite { fit: of_form(Form::Quotient(0)), ..data() }]),
        ("shift by the whole width in data", |t| t.data = vec![DataSite { fit: of_form(Form::Power(64)), ..data() }]),
        ("reads across the end of the function", |t| t.spans[0].indirection.program.ops.insert(0, text(3))),
        ("reads where no sum fits", |t| t.spans[0].indirection.program.ops.insert(0, text(i64::MAX))),
        ("order of nothing", |t| t.spans[0].assembly = vec![AsmLine { iv: None, ..ordered() }]),
        ("order in an instruction", |t| {
            t.spans[0].assembly = vec![ordered()];
            t.spans[0].in_place = Some(in_place());
        }),
        ("order at once", |t| {
            t.spans[0].assembly = vec![ordered()];
            t.mode = Mode::Now;
        }),
        ("empty program", |t| t.spans[0].indirection.program.ops.clear()),
    ];
    for (what, break_it) in broken {
        let mut table = table();
        break_it(&mut table);
        assert!(table.check().is_err(), "{what}");
    }
}

/// `mov $32,%eax` at the start of `f` holds the value.
fn in_place() -> InPlace {
    let patch = Patch { offset: 0, insn_len: 5, field: 1, size: 4, width: 4, iv: 0 };
    InPlace { patches: vec![patch], range: Range::of(1, 100), proof: table().spans[0].proof.clone() }
}

/// Names what is wrong, and makes it wrong.
type BreakInPlace = (&'static str, fn(&mut InPlace));

#[test]
fn incoherent_numbers_in_instructions_are_refused() {
    let with = |break_it: fn(&mut InPlace)| {
        let mut table = table();
        let mut held = in_place();
        break_it(&mut held);
        table.spans[0].in_place = Some(held);
        table
    };
    assert_eq!(with(|_| ()).check(), Ok(()));
    let broken: [BreakInPlace; 14] = [
        ("no instruction", |held| held.patches.clear()),
        ("too many instructions", |held| held.patches = vec![held.patches[0]; 9]),
        ("where no sum fits", |held| held.patches[0].offset = u32::MAX),
        ("behind the span", |held| held.patches[0].offset = 1),
        ("twice the same", |held| held.patches.push(held.patches[0])),
        ("at the opcode", |held| held.patches[0].field = 0),
        ("beyond the instruction", |held| held.patches[0].field = 2),
        ("of no size", |held| held.patches[0].size = 3),
        ("wider than the operation", |held| held.patches[0].width = 2),
        ("no such value", |held| held.patches[0].iv = 1),
        ("no room for the largest", |held| {
            held.patches[0].size = 1;
            held.range.max = 128;
        }),
        ("without the default", |held| held.range.max = 31),
        ("empty", |held| held.range = Range::of(100, 1)),
        ("more values than were proved", |held| held.range.max = 1 << 20),
    ];
    for (what, break_it) in broken {
        assert!(with(break_it).check().is_err(), "{what}");
    }
    let mut both = with(|_| ());
    both.spans[0].in_place_reason = Some("none".into());
    assert!(both.check().is_err());
    let mut undefined = with(|_| ());
    undefined.spans[0].ivs[0].form = Form::Quotient(0);
    assert!(undefined.check().is_err());
}

#[test]
fn a_span_without_an_update_leaves_no_value_and_no_span_to_one() {
    let mut held = table();
    let room = InPlace { range: held.values.hull(), ..in_place() };
    held.spans[0].in_place = Some(room.clone());
    held.spans[0].only_in_place = Some("other CPUs can access the memory".into());
    assert_eq!(held.check(), Ok(()));
    assert_eq!(held.only_in_place(), Some("other CPUs can access the memory"));
    let mut narrow = held.clone();
    narrow.spans[0].in_place.as_mut().unwrap().range.max -= 1;
    assert!(narrow.check().unwrap_err().to_string().contains("need an update"));
    let mut none = held.clone();
    none.spans[0].in_place = None;
    assert!(none.check().unwrap_err().to_string().contains("span 0 needs an update"));
    let mut another = held;
    another.spans.push(table().spans[0].clone());
    assert!(another.check().unwrap_err().to_string().contains("span 1 needs an update"));
}

#[test]
fn programs_are_refused_at_the_operation_that_breaks_a_rule() {
    let check = |ops: Vec<Op>| Program { ops }.check(1);
    let (iv, set) = (op(OpCode::Iv, 4, 0, 0), op(OpCode::SetReg, 4, 0, 0));
    assert_eq!(check(vec![iv, set]), Ok(()));
    assert_eq!(check(vec![]), Err(OpError::Length(0)));
    assert_eq!(check(vec![set; 49]), Err(OpError::Length(49)));
    assert_eq!(check(vec![set]), Err(OpError::Temp(0, 0)));
    assert_eq!(check(vec![iv]), Err(OpError::NoEffect));
    assert_eq!(check(vec![op(OpCode::Iv, 3, 0, 0), set]), Err(OpError::Width(0, 3)));
    assert_eq!(check(vec![op(OpCode::Iv, 4, 32, 0), set]), Err(OpError::Temp(0, 32)));
    assert_eq!(check(vec![iv, op(OpCode::SetReg, 8, 4, 0)]), Err(OpError::Register(1, 4)));
    assert_eq!(check(vec![Op { imm: 1, ..iv }, set]), Err(OpError::Immediate(0, 1)));
    assert_eq!(check(vec![iv, Op { imm: 0x200, ..op(OpCode::SetFlags, 8, 0, 0) }]), Err(OpError::Immediate(1, 0x200)));
    assert_eq!(check(vec![Op { b: 1, ..op(OpCode::Reg, 2, 0, 0) }, set]), Err(OpError::Register(0, 0)));
    assert_eq!(check(vec![Op { b: 1, ..op(OpCode::Reg, 1, 0, 4) }, set]), Err(OpError::Register(0, 4)));
    assert_eq!(check(vec![iv, Op { b: 4, ..op(OpCode::Sext, 4, 1, 0) }, set]), Err(OpError::Width(1, 4)));
    assert_eq!(check(vec![iv, Op { imm: 16, ..op(OpCode::Cond, 1, 1, 0) }, set]), Err(OpError::Immediate(1, 16)));
}

#[test]
fn a_fit_is_applied_at_its_width() {
    assert_eq!(Fit::linear(-1, 0, 4).apply(32), 0xffff_ffe0);
    assert_eq!(Fit::linear(-1, 0, 8).apply(32), u64::MAX - 31);
    assert_eq!(Fit::linear(1, -1, 1).apply(0), 0xff);
    assert_eq!(Fit::linear(i64::MIN, 5, 8).apply(2), 5);
}

/// A safe span of the whole of `f`.
fn scope() -> Scope {
    let exits = vec![Exit { offset: 5, kind: ExitKind::Return, to: None }];
    Scope { function: 0, ranges: vec![[0, 6]], spans: vec![0], instructions: 2, exits, whole: None }
}

#[test]
fn incoherent_safe_spans_are_refused() {
    let with = |change: fn(&mut Scope)| {
        let mut table = table();
        change(&mut table.scopes[0]);
        table.check()
    };
    assert_eq!(with(|_| {}), Ok(()));
    assert_eq!(with(|s| (s.ranges, s.exits) = (vec![[0, 2], [3, 6]], vec![])), Ok(()));
    type Break = (&'static str, fn(&mut Scope));
    let broken: [Break; 11] = [
        ("no such function", |s| s.function = 1),
        ("no range", |s| s.ranges.clear()),
        ("empty range", |s| s.ranges = vec![[0, 5], [6, 6]]),
        ("beyond the end", |s| s.ranges = vec![[0, 7]]),
        ("unsorted", |s| s.ranges = vec![[3, 6], [0, 2]]),
        ("overlapping", |s| s.ranges = vec![[0, 4], [3, 6]]),
        ("touching", |s| s.ranges = vec![[0, 3], [3, 6]]),
        ("no spans", |s| s.spans.clear()),
        ("no such span", |s| s.spans = vec![0, 1]),
        ("an exit outside", |s| s.ranges = vec![[0, 5]]),
        ("a span that is in no scope", |s| s.ranges = vec![[5, 6]]),
    ];
    for (what, change) in broken {
        assert!(with(change).is_err(), "{what}");
    }
}

/// Nobody is promised anything by a table that says nothing about it.
#[test]
fn whole_functions_stand_in_for_safe_spans_that_were_never_computed() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    let path = store.save(&table()).unwrap();
    let mut value: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for field in ["scopes", "mode", "escapes"] {
        assert!(value.as_object_mut().unwrap().remove(field).is_some());
    }
    std::fs::write(&path, value.to_string()).unwrap();
    let read = store.load(BUILD, ID).unwrap();
    assert_eq!((read.mode, read.scoped.as_deref()), (Mode::Global, None));
    assert_eq!((read.scopes[0].ranges.clone(), read.scopes[0].spans.clone()), (vec![[0, 6]], vec![0]));
    assert!(read.scopes[0].whole.is_some() && read.escapes.len() == 1);
}
