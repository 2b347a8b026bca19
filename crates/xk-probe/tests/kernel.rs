//! Places in the kernel of the lab (`lab/lab fetch amd64`), as it lies on disk.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::sync::OnceLock;

use xk_kernel::Image;
use xk_probe::{Class, Found, NoJump, Place, Reach, Resolver};
use xk_testing::kernels::kernel;

/// A module that few others need.
const MODULE: &str = "sch_pie:pie_drop_early";

fn place(text: &str) -> Place {
    Place::parse(text, None).unwrap()
}

fn resolver() -> &'static Resolver {
    static RESOLVER: OnceLock<Resolver> = OnceLock::new();
    RESOLVER.get_or_init(|| {
        let kernel = kernel("amd64");
        let image = Image::from_vmlinuz(&kernel.vmlinuz, None).unwrap().with_modules_in(&kernel.root);
        Resolver::new(&image, &[place(MODULE)], None).unwrap()
    })
}

#[track_caller]
fn found(text: &str) -> Vec<Found> {
    resolver().resolve(&place(text)).unwrap_or_else(|error| panic!("{error}")).found
}

#[track_caller]
fn refused(text: &str, words: &[&str]) -> String {
    let message = match resolver().all(&[place(text)]) {
        Err(error) => error.to_string(),
        Ok(found) => panic!("{text}: {found:?}"),
    };
    words.iter().for_each(|word| assert!(message.contains(word), "no `{word}` in: {message}"));
    message
}

#[test]
fn a_function_is_its_entry() {
    let [entry] = &found("vfs_write")[..] else { panic!("one instruction") };
    assert_eq!((entry.function.as_str(), entry.module.as_deref()), ("vfs_write", None));
    assert_eq!(entry.offset, if entry.after_endbr { 4 } else { 0 });
    let Reach::Tracer(NoJump::EntryCode(behind)) = entry.reach else { panic!("{entry:?}") };
    assert_eq!((entry.probe(7).window, entry.probe(7).cookie), (0, 7), "no jump");
    let body = &found("vfs_write@body")[0];
    assert_eq!(body.address, entry.address + u64::from(behind));
    assert!(entry.no_jump().unwrap().contains(&body.name()), "{:?}", entry.no_jump());
    assert!(matches!(body.reach, Reach::Jump(window) if window.lead == 0), "{body:?}");
}

#[test]
fn every_name_names_its_instruction_again() {
    let all = found("vfs_write@any");
    assert!(all.len() > 50, "{}", all.len());
    for one in &all {
        let again = found(&one.name());
        assert_eq!((again.len(), again[0].address, &again[0].text), (1, one.address, &one.text));
        assert_eq!(found(&format!("{:#x}", one.address)), again);
    }
    let follow = all.windows(2).all(|pair| pair[0].address + u64::from(pair[0].length) <= pair[1].address);
    assert!(follow, "instructions do not overlap");
}

#[test]
fn the_middle_of_an_instruction_is_refused_with_its_neighbours() {
    let all = found("vfs_write@any");
    let [at, next] = &all[10..12] else { panic!("{all:?}") };
    let middle = (at.offset + 1..next.offset)
        .next_back()
        .or_else(|| all.iter().find(|one| one.length > 1).map(|one| one.offset + 1));
    let middle = middle.unwrap();
    let before = all.iter().rfind(|one| one.offset < middle).unwrap();
    let after = all.iter().find(|one| one.offset > middle).unwrap();
    refused(
        &format!("vfs_write+{middle:#x}"),
        &["in the middle of an instruction", &before.name(), &after.name(), &before.text, &after.text],
    );
}

#[test]
fn classes_are_told_apart() {
    let texts = |class: Class| -> Vec<String> {
        found(&format!("vfs_write@{class}")).into_iter().map(|one| one.text).collect()
    };
    assert_eq!(texts(Class::Entry).len(), 1);
    let returns = texts(Class::Return);
    assert!(!returns.is_empty() && returns.iter().all(|text| text.contains("ret")), "{returns:?}");
    let calls = texts(Class::Call);
    assert!(calls.iter().any(|text| text == "call rw_verify_area"), "{calls:?}");
    assert!(!calls.iter().any(|text| text.contains("thunk") || text.contains("fentry")), "{calls:?}");
    let indirect = texts(Class::IndirectCall);
    assert!(!indirect.is_empty(), "write_iter() is called by pointer");
    assert!(indirect.iter().all(|text| text.contains("__x86_indirect_thunk") || text.contains('*')), "{indirect:?}");
    let any = texts(Class::Any);
    assert!(returns.len() + calls.len() + indirect.len() < any.len());
}

#[test]
fn calls_of_one_function_are_told_apart() {
    let addresses = |found: Vec<Found>| found.into_iter().map(|one| one.address).collect::<Vec<_>>();
    let called = |text: &Found, name: &str| text.text.split(' ').next_back() == Some(name);
    let (kfree, all) = (found("tcp_*@call:kfree"), found("tcp_*@call"));
    assert!(!kfree.is_empty() && kfree.len() < all.len());
    let expected: Vec<Found> = all.into_iter().filter(|one| called(one, "kfree")).collect();
    assert_eq!(addresses(kfree), addresses(expected));
    let some = found("tcp_*@call:kfree*");
    assert!(some.iter().any(|one| called(one, "kfree_skb_list_reason") || called(one, "kfree_sensitive")), "{some:?}");
    refused("tcp_*@call:printf", &["no instruction"]);
}

#[test]
fn accesses_to_a_field_are_found_where_its_type_is_evident() {
    let texts = |text: &str| found(text).into_iter().map(|one| one.text).collect::<Vec<_>>();
    // Linux 6.12: f_mode is at 12 bytes, and a parameter leads to it; __state is at 24, and `current` does.
    let modes = texts("vfs_write@field:file.f_mode");
    assert!(!modes.is_empty() && modes.iter().all(|text| text.contains("0xc(%r")), "{modes:?}");
    assert!(texts("schedule@field:task_struct.__state").iter().any(|text| text.contains("mov 0x18(%r")));
    // iocb->ki_filp->f_mapping->host->i_size, through four structures.
    assert!(!texts("generic_write_checks@field:inode.i_size").is_empty());
    // In a structure that is part of another one, and in an anonymous one of it.
    assert!(!texts("path_get@field:path.dentry").is_empty());
    assert!(!texts("vfs_*@field:file.f_path.dentry").is_empty());
    refused("get_random_u32@field:file.f_mode", &["no instruction of this class"]);
    refused("vfs_write@field:file.f_mood", &["no member f_mood"]);
    refused("vfs_write@field:fill.f_mode", &["no structure fill"]);
    refused("vfs_write@field:file", &["names no member"]);
}

#[test]
fn patterns_leave_out_what_cannot_be_probed() {
    let resolved = resolver().resolve(&place("vfs_*@body")).unwrap();
    assert!(resolved.functions > 30, "{}", resolved.functions);
    assert!(resolved.found.iter().all(|one| one.function.starts_with("vfs_") && one.address > 0));
    let [here] = &found("vfs_writ?@entry")[..] else { panic!("one function") };
    assert_eq!(here.function, "vfs_write");
    // The handlers of breakpoints are on the kernel's list.
    refused("exc_int3", &["exc_int3 cannot be probed", "section"]);
    refused("exc_int3@any", &["no instruction of this class that can be probed"]);
    refused("start_kernel", &["start_kernel cannot be probed", "only when the kernel"]);
    refused("no_such_*@entry", &["no function of vmlinux matches"]);
    refused("nmi_handle.part.0@any", &["no instruction of this class that can be probed"]);
    // A function that windows avoid as a whole.
    let calls = found("static_call_text_reserved@call");
    assert!(!calls.is_empty() && calls.iter().all(|one| !one.text.contains("__SCT__")), "{calls:?}");
    // stac is three no-ops in the image, and one instruction in the running kernel: only its first byte is sure.
    let opens: Vec<u64> =
        found("compat_fillonedir@any").iter().filter(|one| one.text == "nop").map(|one| one.offset).collect();
    assert!(!opens.is_empty() && opens.windows(2).all(|pair| pair[1] > pair[0] + 2), "{opens:x?}");
    refused(&format!("compat_fillonedir+{:#x}", opens[0] + 1), &["cannot be probed", "an alternative is chosen"]);
}

#[test]
fn functions_of_modules_are_found_with_their_module() {
    let [entry] = &found(MODULE)[..] else { panic!("one instruction") };
    assert_eq!((entry.module.as_deref(), entry.function.as_str()), (Some("sch_pie"), "pie_drop_early"));
    assert!(entry.name().starts_with("sch_pie:pie_drop_early"), "{}", entry.name());
    assert!(found("sch_pie:*@any").len() > 100);
    refused("sch_pie:vfs_write", &["module sch_pie has no function vfs_write"]);
}

#[test]
fn names_that_do_not_lead_to_one_function_are_refused() {
    refused("vfs_writ", &["vmlinux has no function vfs_writ", "similar: vfs_write"]);
    refused("no_such_function_anywhere", &["inlined"]);
    refused("vfs_write+0x10000", &["vfs_write has 0x"]);
    let message = refused("type_show", &["functions have this name", "0xffffffff"]);
    let address = message.rsplit(", ").next().unwrap();
    assert_eq!(found(address)[0].function, "type_show");
    refused("0x1000", &["no function of the kernel"]);
}

#[test]
fn places_are_probed_once_and_know_who_named_them() {
    let texts = ["vfs_write@any", "vfs_write@body", "vfs_read@body"];
    let (all, left_out) = resolver().all(&texts.map(place)).unwrap();
    assert!(all.windows(2).all(|pair| pair[0].0.address < pair[1].0.address));
    assert!(all.iter().all(|(found, number)| (found.function == "vfs_read") == (*number == 2)));
    assert_eq!(left_out, resolver().resolve(&place("vfs_write@any")).unwrap().left_out);
}
