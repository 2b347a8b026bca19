//! What is refused, and that nothing has changed then.

use crate::*;

/// An update is proved for code that nobody else changes up to its probe; beside
/// it there is room.
pub fn overlapping_expressions_are_busy() {
    let _tune = load(&value_table(), 41).unwrap();
    let mut other = table(&target_module(), "OTHER", vec![SiteSpec::new("xk_target_value", 7, 3, set_register(RDX))]);
    other.spans[0].start = 0;
    let refused = load(&other, 42);
    assert!(
        matches!(&refused, Err(Error::Busy(text)) if text.contains("xk_target_value+0x7") && text.contains("VALUE")),
        "{refused:?}"
    );
    // Behind the other's instruction, or from it on: that update has been made by then.
    for start in [7, 5] {
        other.spans[0].start = start;
        let beside = load(&other, 42).unwrap();
        assert_eq!(target("value"), "42");
        beside.unload().unwrap();
        assert_eq!(target("value"), "41");
    }
    // It would be inside a jump of ours, had that one become a detour; or beside a number, had it become a patch.
    for backend in [Backend::Auto, Backend::PatchOrKprobe] {
        let refused = message(Device::open().unwrap().load_by(&other, &Loaded, backend));
        assert!(refused.contains("these instructions are held by"), "{backend:?}: {refused}");
    }
    // Two updates at one instruction: nothing says which comes first.
    other.spans[0].indirection.offset = 5;
    other.spans[0].indirection.insn_len = 2;
    let refused = message(load(&other, 42));
    assert!(refused.contains("these instructions are held by"), "{refused}");
}

/// Whichever of the two comes first: the one that is there may become something else than a probe later.
pub fn beside_what_may_be_no_probe_is_busy() {
    let mut other = table(&target_module(), "OTHER", vec![SiteSpec::new("xk_target_value", 7, 3, set_register(RDX))]);
    other.spans[0].start = 5;
    for backend in [Backend::Auto, Backend::PatchOrKprobe] {
        let device = Device::open().unwrap();
        let first = device.load_by(&value_table(), &Loaded, backend).unwrap();
        let refused = message(load(&other, 42));
        assert!(refused.contains("these instructions are held by"), "{backend:?}: {refused}");
        first.unload().unwrap();
    }
    let first = load(&value_table(), 41).unwrap();
    load(&other, 42).unwrap().unload().unwrap();
    first.unload().unwrap();
}

/// The second is verified while the first has a jump over three of the
/// function's instructions.
pub fn two_tunes_share_a_function() {
    let first = load(&value_table(), 64).unwrap();
    wait_for("optimisation", || only_site(&first).probe == Probe::Jump);
    let mut second =
        table(&target_module(), "SECOND", vec![SiteSpec::new("xk_target_value", 10, 2, set_register(RAX))]);
    let tune = load(&second, 700).unwrap();
    assert_eq!(target("value"), "64");
    tune.unload().unwrap();
    assert_eq!(target("value"), "64");
    // Looking through the jump does not mean looking away from what it hides.
    second.functions[0].bytes.replace_range(12..14, "90");
    assert!(message(load(&second, 700)).contains("xk_target_value+0x6: expected 90, running c2"));
}

pub fn a_foreign_probe_is_refused() {
    const EVENTS: &str = "/sys/kernel/tracing/kprobe_events";
    const ENABLE: &str = "/sys/kernel/tracing/events/kprobes/foreign/enable";
    let site = SiteSpec::new("xk_target_traced", 5, 2, set_register(RDI));
    let table = table(&target_module(), "TRACED", vec![site]);
    append(EVENTS, "p:foreign xk_target:xk_target_traced+5\n");
    write(ENABLE, "1");
    let refused = load(&table, 5);
    assert!(
        matches!(&refused, Err(Error::Drift(text))
            if text.starts_with("xk_target_traced+0x5: expected 89, running") && text.contains("another probe")),
        "{refused:?}"
    );
    write(ENABLE, "0");
    append(EVENTS, "-:foreign\n");
    wait_for("the foreign probe to go", || load(&table, 5).is_ok());
}

/// Whichever of the two names the kernel itself would print.
pub fn another_name_of_a_function_is_accepted() {
    for name in ["xk_target_value", "xk_target_alias"] {
        let site = SiteSpec::new(name, 5, 2, set_register(RAX));
        let tune = load(&table(&target_module(), "ALIAS", vec![site]), 3).unwrap();
        assert_eq!(target("value"), "3");
        tune.unload().unwrap();
    }
}

pub fn a_wrong_place_is_refused() {
    let mut wrong = value_table();
    wrong.functions[0].module = Some("xk".into());
    struct Fixed(u64);
    impl xk_runtime::AddressOf for Fixed {
        fn address(&self, _: &xk_table::Function) -> Result<Option<u64>, xk_runtime::AddressError> {
            Ok(Some(self.0))
        }
        fn data_address(&self, _: &xk_table::DataSite) -> Result<Option<u64>, xk_runtime::AddressError> {
            Ok(Some(self.0))
        }
    }
    use xk_runtime::AddressOf;
    let right = Loaded.address(&value_table().functions[0]).unwrap().unwrap();
    let refused = |table: &ScopeTable, address| message(load_at(table, 5, &Fixed(address)));
    assert!(refused(&wrong, right).contains("lies in xk_target, not in xk"));
    assert!(refused(&value_table(), right + 1).contains("is xk_target_value+0x1"));
    assert!(refused(&value_table(), 0x1000).contains("not in the kernel's text"));
    wrong = value_table();
    wrong.functions[0].symbol = "xk_target_twice".into();
    assert!(refused(&wrong, right).contains("is xk_target_value+0"));
    // In the middle of an instruction.
    wrong = value_table();
    wrong.spans[0].indirection.offset = 2;
    wrong.spans[0].start = 2;
    assert!(refused(&wrong, right).contains("xk_target_value+0x2: not the start of an instruction"));
    wrong = value_table();
    wrong.spans[0].indirection.insn_len = 3;
    assert!(refused(&wrong, right).contains("another length"));
    // The return, which the kernel patches.
    wrong = value_table();
    wrong.spans[0].indirection.offset = 12;
    wrong.spans[0].indirection.insn_len = 5;
    assert!(
        refused(&wrong, right).contains("the kernel patches this instruction itself"),
        "{}",
        refused(&wrong, right)
    );
    assert_eq!(target("value"), "32");
}

/// `Program::check` refuses it before the kernel is asked; the kernel's own
/// check is the subject of the tests of ops.c.
pub fn a_malformed_program_is_refused() {
    let mut wrong = value_table();
    wrong.spans[0].indirection.program.ops[1].dst = 4;
    assert!(matches!(load(&wrong, 5), Err(Error::Table { .. })));
}

/// Valid requests with some bytes changed, past the checks of this crate.
pub fn garbage_is_refused() {
    use xk_runtime::AddressOf;
    let table = value_table();
    let text = table.functions[0].text().unwrap();
    let mask = table.functions[0].text_mask().unwrap();
    let address = Loaded.address(&table.functions[0]).unwrap().unwrap();
    let device = raw::device();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut refused = 0;
    for _ in 0..150 {
        let mut flat = raw::Flat::new(address, &text, &mask, &table.spans[0]);
        for _ in 0..=next() % 8 {
            if next() % 4 == 0 {
                raw::scribble(&mut flat.head, next(), next());
            } else {
                raw::scribble(&mut flat.sites[0], next(), next());
            }
        }
        match flat.load(&device) {
            Ok(id) => raw::unload(&device, id),
            Err(_) => refused += 1,
        }
    }
    // Another name of the module is accepted: such a module may come.
    assert!(refused > 30 && refused < 150, "{refused}");
    assert_eq!(target("value"), "32");
    load(&value_table(), 5).unwrap();
}

pub fn another_interface_version_is_refused() {
    let table = value_table();
    let text = table.functions[0].text().unwrap();
    let device = raw::device();
    for change in [
        |flat: &mut raw::Flat| flat.abi += 1,
        |flat: &mut raw::Flat| flat.size -= 8,
        |flat: &mut raw::Flat| flat.head.abi += 1,
    ] {
        let mut flat = raw::Flat::new(0, &text, &text, &table.spans[0]);
        change(&mut flat);
        assert_eq!(flat.load(&device).unwrap_err().0, libc::EPROTO);
    }
}

pub fn all_sites_or_none() {
    let sites = vec![
        SiteSpec::new("xk_target_value", 5, 2, set_register(RAX)),
        SiteSpec::new("xk_target_compare", 5, 2, compare(RDI, false)),
    ];
    let refused = load(&table(&target_module(), "BOTH", sites), 5);
    assert!(message(refused).contains("xk_target_compare+0x5"));
    assert_eq!(target("value"), "32");
    load(&value_table(), 6).unwrap();
}

pub fn out_of_range_is_refused() {
    assert!(matches!(load(&value_table(), 1001), Err(Error::OutOfRange { .. })));
    let tune = load(&value_table(), 1000).unwrap();
    let refused = tune.set(-1);
    assert!(
        matches!(&refused, Err(Error::OutOfRange { value: -1, values, .. }) if values.hull().max == 1000),
        "{refused:?}"
    );
    assert_eq!(target("value"), "1000");
}
