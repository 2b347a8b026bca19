//! Functions that are the same in both builds, byte for byte and reference for
//! reference. They need no comparison: equal code with equal references behaves
//! equally, also where no path of the comparison leads.

use super::is_part;
use xk_lift::insn::{Insn, Node, Target};
use xk_lift::object::{Function, Object};

/// Whether two functions, and the parts of them that the compiler moved away, are
/// the same in both objects.
pub(crate) fn same(base: &Object, variant: &Object, ours: &Function, theirs: &Function) -> bool {
    let part = |object: &Object| {
        let name = format!("{}.cold", ours.name);
        object.functions.values().find(|f| is_part(f) && f.name == name).cloned()
    };
    let parts = match (part(base), part(variant)) {
        (None, None) => true,
        (Some(x), Some(y)) => same_code(base, variant, &x, &y),
        _ => false,
    };
    parts && same_code(base, variant, ours, theirs)
}

/// A place as both builds name it: function and offset.
fn named(object: &Object, node: Node) -> Option<(String, u64)> {
    let function = object.function_at(node)?;
    Some((function.name.clone(), node.offset - function.start.offset))
}

/// Bytes of the distance in a near call or jump.
const DISTANCE: usize = 4;

/// Where distances to other functions stand in the code of a function. What counts is
/// which functions those are.
fn distances(object: &Object, function: &Function) -> Vec<usize> {
    let mut end = function.start;
    end.offset += function.size;
    let leaves = |insn: &&Insn| match &insn.target {
        Some(Target::Local(node)) => !(function.start..end).contains(node) && object.function_at(*node).is_some(),
        _ => false,
    };
    let far = object.insns.range(function.start..end).map(|(_, insn)| insn).filter(leaves);
    let field = |insn: &Insn| (insn.next().offset - function.start.offset) as usize - DISTANCE;
    far.filter(|insn| insn.raw.len() > DISTANCE).map(field).collect()
}

/// Whether two pieces of code are the same.
pub(super) fn same_code(base: &Object, variant: &Object, ours: &Function, theirs: &Function) -> bool {
    let bytes = |object: &Object, function: &Function| {
        let (mut text, mask) = object.text_and_mask(function);
        for at in distances(object, function) {
            text[at..at + DISTANCE].fill(0);
        }
        (text, mask)
    };
    if bytes(base, ours) != bytes(variant, theirs) {
        return false;
    }
    let insns = |object: &Object, function: &Function| {
        let end = Node { section: function.start.section, offset: function.start.offset + function.size };
        object.insns.range(function.start..end).map(|(_, insn)| insn.clone()).collect::<Vec<_>>()
    };
    let (ours, theirs) = (insns(base, ours), insns(variant, theirs));
    let target = |object: &Object, target: &Option<Target>| match target {
        Some(Target::External(symbol)) => Some((symbol.name.clone(), symbol.offset as u64)),
        Some(Target::Local(node)) => named(object, *node),
        None => None,
    };
    let label =
        |object: &Object, node: &Node| object.jump_labels.get(node).map(|(to, key)| (named(object, *to), key.clone()));
    let fixup = |object: &Object, node: &Node| {
        object.fixups.get(node).map(|to| (named(object, *to), object.handlers.get(node).copied()))
    };
    ours.len() == theirs.len()
        && ours.iter().zip(&theirs).all(|(x, y)| {
            x.displacement == y.displacement
                && x.immediate == y.immediate
                && x.pool == y.pool
                && target(base, &x.target) == target(variant, &y.target)
                && label(base, &x.node) == label(variant, &y.node)
                && fixup(base, &x.node) == fixup(variant, &y.node)
                && base.bugs.get(&x.node) == variant.bugs.get(&y.node)
                && base.warnings.contains(&x.node) == variant.warnings.contains(&y.node)
                && base.in_alternative.contains(&x.node) == variant.in_alternative.contains(&y.node)
        })
}
