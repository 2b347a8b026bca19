//! What `xk-lift` reads: objects, types, format strings.

use anyhow::Result;
use xk_lift::flow::{successors, Flow};
use xk_lift::object::Object;
use xk_lift::prototypes::{conversions, Prototypes};

use super::{said, Input};
use crate::seeds;

pub fn objects() -> Result<Vec<Vec<u8>>> {
    seeds::objects()
}

/// Parses, and asks for what the analysis asks for.
pub fn object(input: &Input<'_>) -> String {
    said(Object::parse(input.bytes), |object| {
        let flow = Flow::new(&object, &Prototypes::default());
        let mut masked = 0;
        for function in object.functions.values() {
            let (text, mask) = object.text_and_mask(function);
            assert_eq!((text.len(), mask.len()), (function.size as usize, text.len()));
            masked += mask.iter().filter(|&&byte| byte == 0).count();
            let _ = flow.callee_reads(function.start);
        }
        let next: usize = object.insns.values().map(|insn| successors(&object, insn).len()).sum();
        for insn in object.insns.values().take(64) {
            let _ = flow.block(&object, insn.node);
        }
        format!(
            "functions{} insns{} next{} masked{} labels{} fixups{} warnings{} alternatives{} {} {}",
            size(object.functions.len()),
            size(object.insns.len()),
            size(next),
            size(masked),
            size(object.jump_labels.len()),
            size(object.fixups.len()),
            size(object.warnings.len()),
            size(object.alternatives.len()),
            size(object.alternative_targets().len()),
            size(object.lock_prefixes.len()),
        )
    })
}

/// A count as a letter: what is worth telling apart.
pub fn size(count: usize) -> char {
    char::from(b'a' + (usize::BITS - count.leading_zeros()) as u8 % 26)
}

pub fn types() -> Result<Vec<Vec<u8>>> {
    seeds::btf()
}

/// The length of vmlinux's section, that section, a module's.
pub fn btf(input: &Input<'_>) -> String {
    let Some((length, rest)) = input.bytes.split_at_checked(2) else { return "cut".into() };
    let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
    let (vmlinux, module) = rest.split_at(length.min(rest.len()));
    let alone = Prototypes::of_btf(vmlinux);
    let both = alone.with_module(module);
    let about = |prototypes: &Prototypes| {
        ["f", "g", "h", "printf", "wide"].map(|name| {
            let counts = (prototypes.arguments(name), prototypes.variadic(name));
            assert!(counts.0.is_none_or(|count| count <= 6), "{counts:?}");
            (counts, prototypes.is_function(name), prototypes.returns_in_rax(name))
        })
    };
    let letters = format!("{:?} {:?}", about(&alone), about(&both));
    // Digits are no news to the fuzzer; here they are.
    letters.replace("true", "t").replace("false", "f").replace("Some", "").replace("None", "n").replace('1', "i")
}

pub fn formats() -> Result<Vec<Vec<u8>>> {
    Ok(vec![b"%d of %*pM: 100%% %-08.*llx".to_vec(), b"%".to_vec()])
}

pub fn format(input: &Input<'_>) -> String {
    let text = String::from_utf8_lossy(input.bytes);
    let count = conversions(&text);
    assert!(count <= text.len());
    format!("count {}", size(count))
}
