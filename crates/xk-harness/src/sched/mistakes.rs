//! The mistakes that `kernel/sched_faulty` can make as a policy of `xk_sched.ko`, and what must become of each.

/// A row of `kernel/sched_faulty/mistakes.txt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mistake {
    /// The module's parameter `kind`.
    pub kind: &'static str,
    /// What the kernel must do.
    pub result: Expected,
}

/// What must become of a policy that makes a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// It is ejected, and the report names this event, and the states of the thread before and after. `None`: any state;
    /// empty: the report names no thread.
    Ejected {
        /// The event. `unblock_` stands for `new_`, too.
        event: &'static str,
        /// The state before.
        from: Option<&'static str>,
        /// The state after.
        to: Option<&'static str>,
    },
    /// It is not registered.
    Refused,
    /// The kernel does not survive it.
    Fatal,
}

/// All of them.
#[must_use]
pub fn mistakes() -> Vec<Mistake> {
    let text = include_str!("../../../../kernel/sched_faulty/mistakes.txt");
    text.lines().filter(|line| !line.starts_with('#')).filter_map(row).collect()
}

fn row(line: &'static str) -> Option<Mistake> {
    let mut words = line.split_whitespace();
    let (kind, event, from, to) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let state = |word| match word {
        "*" => None,
        "-" => Some(""),
        name => Some(name),
    };
    let result = match event {
        "refused" => Expected::Refused,
        "fatal" => Expected::Fatal,
        event => Expected::Ejected { event, from: state(from), to: state(to) },
    };
    Some(Mistake { kind, result })
}

impl Mistake {
    /// Whether it is made when the policy takes over the threads of another.
    #[must_use]
    pub fn is_in_adopt(self) -> bool {
        matches!(self.result, Expected::Ejected { event: "adopt", .. })
    }

    /// Whether a report of this event, with these states (empty: of no thread), is about the mistake.
    #[must_use]
    pub fn is_reported_by(&self, event: &str, from: &str, to: &str) -> bool {
        let Expected::Ejected { event: expected, from: before, to: after } = self.result else { return false };
        let event = event.replace(' ', "_");
        // A thread that is created may come to the event before one that wakes.
        let is_new = event != expected && event.replace("new_", "unblock_") == expected;
        let is = |state: Option<&str>, reported: &str| state.is_none_or(|state| state == reported);
        is_new || (event == expected && is(before, from) && is(after, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_understood() {
        let all = mistakes();
        assert!(all.len() > 40, "{all:?}");
        let fatal = all.iter().filter(|mistake| mistake.result == Expected::Fatal).count();
        assert!(fatal <= 2, "{fatal}");
        let block = all.iter().find(|mistake| mistake.kind == "forget_block").copied();
        let block = block.unwrap_or(Mistake { kind: "", result: Expected::Fatal });
        assert!(block.is_reported_by("block", "RUNNING", "RUNNING"));
        assert!(!block.is_reported_by("block", "RUNNING", "BLOCKED"));
        assert!(!block.is_reported_by("tick", "RUNNING", "RUNNING"));
    }
}
