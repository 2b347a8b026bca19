//! Branches: both builds take the same one, or one build has a branch of its own.

use super::claims::Effort;
use super::relation::{BASE, OTHER};
use super::side::{At, Kind};
use super::walk::{Pair, Step, Walk};
use super::Failure;
use xk_lift::insn::{Insn, Node};
use xk_lift::state::arithmetic;
use xk_lift::term::TermId;

impl<'a> Walk<'a> {
    /// Both builds branch.
    pub fn branches(&mut self, mut pair: Pair, a: &Insn, b: &Insn) -> Step {
        let ours = self.condition(&pair, BASE, a.node)?;
        let theirs = self.condition(&pair, OTHER, b.node)?;
        let opposite = self.terms.not(theirs);
        let mut found = None;
        for (inverted, theirs) in [(false, theirs), (true, opposite)] {
            if self.claims.equal(&mut self.terms, &mut pair.facts, ours, theirs, Effort::Needed) {
                found = Some(inverted);
                break;
            }
        }
        if found.is_none() {
            self.narrow(&pair, ours, theirs)?;
            self.narrow(&pair, ours, opposite)?;
        }
        let Some(inverted) = found else {
            let forked = if self.mentions_v(theirs) { OTHER } else { BASE };
            let node = if forked == OTHER { b.node } else { a.node };
            return self.fork(pair, forked, node);
        };
        for taken in [false, true] {
            if self.terms.as_const(ours) == Some(u128::from(!taken)) {
                continue;
            }
            let mut next = pair.clone();
            next.facts.assume(&mut self.terms, ours, taken);
            next.at = [self.outcome(BASE, a, taken)?, self.outcome(OTHER, b, taken != inverted)?];
            next.trace[BASE].push(a.node);
            next.trace[OTHER].push(b.node);
            self.follow(next);
        }
        Ok(())
    }

    /// One build branches, the other stays where it is.
    pub fn fork(&mut self, pair: Pair, side: usize, node: Node) -> Step {
        let condition = self.condition(&pair, side, node)?;
        let insn = self.insn(side, node)?;
        if side == OTHER {
            self.decide_by_v(&pair, condition)?;
        }
        for taken in [false, true] {
            let mut next = pair.clone();
            next.facts.assume(&mut self.terms, condition, taken);
            let excluded = self.terms.as_const(condition) == Some(u128::from(!taken));
            if excluded || !self.claims.possible(&self.terms, &next.facts) {
                continue;
            }
            next.at[side] = self.outcome(side, insn, taken)?;
            next.trace[side].push(node);
            self.follow(next);
        }
        Ok(())
    }

    /// Whether V alone decides where the other build goes from `node`. The flags that say so are no part of a
    /// relation.
    pub fn goes_by_v(&mut self, pair: &Pair, node: Node) -> Step<bool> {
        if !self.is_branch(OTHER, node) {
            return Ok(false);
        }
        let condition = self.condition(pair, OTHER, node)?;
        Ok(self.is_of_v(condition))
    }

    /// Where a branch of the other build can go one way only with the default, the deployed
    /// build need not have it: then it goes that way for all of the range.
    fn decide_by_v(&mut self, pair: &Pair, condition: TermId) -> Step {
        if self.terms.as_const(condition).is_some() || !self.mentions_v(condition) {
            return Ok(());
        }
        let outcomes = [0, 1].map(|value| self.terms.constant(value, 1));
        for value in outcomes {
            if self.claims.equal(&mut self.terms, &mut pair.facts.clone(), condition, value, Effort::Needed) {
                return Ok(());
            }
        }
        for value in outcomes {
            if let Some(range) = self.claims.widest(&mut self.terms, &pair.facts, condition, value) {
                return Err(Failure::Narrower(range));
            }
        }
        Ok(())
    }

    /// If the two are equal for some values around the default only: those are the range.
    pub fn narrow(&mut self, pair: &Pair, ours: TermId, theirs: TermId) -> Step {
        let (ours, theirs) = (pair.facts.rewrite(&mut self.terms, ours), pair.facts.rewrite(&mut self.terms, theirs));
        if !self.mentions_v(ours) && !self.mentions_v(theirs) {
            return Ok(());
        }
        match self.claims.widest(&mut self.terms, &pair.facts, ours, theirs) {
            Some(range) => Err(Failure::Narrower(range)),
            None => Ok(()),
        }
    }

    /// The condition of the branch at `node`.
    fn condition(&mut self, pair: &Pair, side: usize, node: Node) -> Step<TermId> {
        let insn = self.insn(side, node)?;
        let Some(Kind::Branch(code)) = self.sides[side].kind(insn) else {
            return self.mismatch(node, "no branch");
        };
        let condition = arithmetic::condition(&mut self.terms, &pair.states[side].flags, code);
        Ok(pair.facts.rewrite(&mut self.terms, condition))
    }

    /// Where control goes from a branch.
    fn outcome(&self, side: usize, insn: &Insn, taken: bool) -> Step<At> {
        if !taken {
            return Ok(At::Place(insn.next()));
        }
        let Some(target) = &insn.target else { return self.mismatch(insn.node, "a branch without a target") };
        Ok(match self.sides[side].within(insn.node, target) {
            Some(node) => At::Place(node),
            None => At::Leaving(insn.node, target.clone()),
        })
    }

    pub fn is_branch(&self, side: usize, node: Node) -> bool {
        let insn = self.sides[side].insn(node);
        insn.is_some_and(|insn| matches!(self.sides[side].kind(insn), Some(Kind::Branch(_))))
    }
}
