//! What a function returns that has neither branches nor calls.

use xk_lift::flow::Flow;
use xk_lift::object::{Function, Object};
use xk_lift::prototypes::Prototypes;
use xk_lift::state::State;
use xk_lift::term::{TermId, Terms};

use super::calls::RAX;
use super::side::{is_return, At, Kind, Side, Stop};

/// What `function` returns, 64 bits wide, as a term of V and of what is unknown at its entry; nothing if it does more than
/// compute that.
pub(crate) fn returned(object: &Object, function: &Function) -> Option<(Terms, TermId)> {
    let flow = Flow::new(object, &Prototypes::default());
    let side = Side { object, flow: &flow, notes: None, replacements: None, split: true };
    let mut terms = Terms::new();
    let mut state = State::unknown(&mut terms);
    let stop = side.run(&mut terms, &mut state, &At::Start(function.start), &mut Vec::new()).ok()?;
    let returns = match &stop {
        Stop::Leave(_, target) => is_return(target),
        Stop::Event(node) => side.insn(*node).is_some_and(|insn| side.kind(insn) == Some(Kind::Return)),
        Stop::Join(_) | Stop::End(_) => false,
    };
    returns.then_some((terms, state.regs[RAX]))
}
