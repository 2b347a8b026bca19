//! What counts as inside, and which scopes are refused.

use xk_harness::Running;

use crate::*;

/// The table of HOLD with these ranges of `xk_atomic_hold`.
fn narrowed(ranges: &[[u32; 2]]) -> ScopeTable {
    let mut table = table(&file(ATOMIC_KO), &family("HOLD").unwrap()).unwrap();
    let functions = &table.functions;
    let scope = table.scopes.iter_mut().find(|scope| functions[scope.function].symbol == "xk_atomic_hold").unwrap();
    scope.ranges = ranges.to_vec();
    table
}

/// Where `xk_atomic_hold` waits: the offset to which its call will return.
fn returns_to(report: &str) -> u32 {
    let (_, frame) = report.split_once("xk_atomic_hold+0x").unwrap();
    u32::from_str_radix(frame.split('/').next().unwrap(), 16).unwrap()
}

/// By one byte: the last of the call. Where it will return to has not begun.
pub fn a_caller_is_inside_by_the_call_that_has_not_returned() {
    let whole = table(&file(ATOMIC_KO), &family("HOLD").unwrap()).unwrap();
    let hold = whole.functions.iter().position(|function| function.symbol == "xk_atomic_hold").unwrap();
    let end = (whole.functions[hold].bytes.len() / 2) as u32;
    let spans = whole.spans.iter().filter(|span| span.function == hold).map(|span| [span.start, span.end]);

    let holder = Holder::new();
    let device = Device::open().unwrap();
    let tune = device.load(&whole, &Loaded).unwrap();
    let report = blocked(tune.go(Destination::Value(TUNED), Mode::Global, BRIEF)).2;
    names(&report, holder.pid());
    tune.unload().unwrap();
    let behind = returns_to(&report);
    // A scope has to contain the critical spans.
    let mut call_only: Vec<[u32; 2]> = spans.chain([[behind - 1, behind]]).collect();
    call_only.sort_unstable();

    for (ranges, inside) in [(call_only, true), (vec![[0, behind - 1], [behind, end]], false)] {
        let tune = device.load(&narrowed(&ranges), &Loaded).unwrap();
        for mode in [Mode::Global, Mode::Task] {
            let result = tune.go(Destination::Value(TUNED), mode, BRIEF);
            if inside {
                names(&blocked(result).2, holder.pid());
            } else {
                assert_eq!(result.unwrap().stops, 1, "{ranges:x?} {mode}");
            }
            assert_eq!(outside(), if inside { DEFAULT } else { TUNED }, "{ranges:x?} {mode}");
            tune.set(DEFAULT).unwrap();
        }
        tune.unload().unwrap();
    }
    assert_eq!(holder.release(), [DEFAULT; 2]);
}

/// The idle tasks are on no list of threads.
pub fn a_scope_in_an_idle_function_is_refused() {
    for symbol in ["do_idle", "cpu_startup_entry"] {
        let idle = Running::find(symbol).unwrap();
        let mut table = table(&file(ATOMIC_KO), &family("HOLD").unwrap()).unwrap();
        idle.confine(&mut table);
        let refused = Device::open().unwrap().load(&table, &idle);
        assert!(
            matches!(&refused, Err(Error::Refused { reason, errno: libc::EOPNOTSUPP })
                if *reason == format!("scope in {symbol}: idle tasks never leave it")),
            "{refused:?}"
        );
        assert!(only_tune().is_none());
        assert_eq!(outside(), DEFAULT);
    }
    let _tune = tuned("HOLD");
    assert_eq!(outside(), TUNED);
}
