//! What makes a number look like a perf-const: the words of its name, the units in its value, and
//! how code uses it. Each observation votes for a category; the tables here are the whole opinion.

use crate::find::Finder;
use crate::scan::{Place, Scan};
use crate::token::Kind;

/// What a perf-const sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// How long to wait, how often to act, when something is too old.
    Interval,
    /// From which amount on behaviour changes.
    Threshold,
    /// How much is done at once.
    Batch,
    /// By what something is multiplied, divided or shifted.
    Scaling,
    /// How often something is tried.
    Retries,
    /// How much there may be at most or at least.
    Limit,
    /// How large something is.
    Size,
    /// It is compared or computed with, and no more is known.
    Other,
}

impl Category {
    /// Every category, with its word.
    pub const ALL: [(Category, &'static str); 8] = [
        (Category::Interval, "interval"),
        (Category::Threshold, "threshold"),
        (Category::Batch, "batch"),
        (Category::Scaling, "scaling"),
        (Category::Retries, "retries"),
        (Category::Limit, "limit"),
        (Category::Size, "size"),
        (Category::Other, "other"),
    ];

    /// The word for it.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(category, _)| *category == self).map_or("other", |(_, word)| word)
    }

    /// The category with this word.
    pub fn of_word(word: &str) -> Option<Category> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(category, _)| *category)
    }
}

/// One observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Evidence {
    /// A word of the name.
    Name(&'static str, Category),
    /// A unit of time in the value.
    Unit(&'static str),
    /// Argument of a function that takes a time.
    Time(&'static str),
    /// In a sum with `jiffies`.
    Jiffies,
    /// Argument of `min` and the like.
    Clamp(&'static str),
    /// Compared in the head of a loop.
    Loop(&'static str),
    Compared(&'static str),
    Multiplies,
    Divides,
    Shifts,
    /// Argument of an allocation.
    Allocates(&'static str),
    Added,
    Assigned,
    /// Argument of any other function.
    Passed,
}

impl Evidence {
    /// How much it counts, and for what.
    pub fn vote(self) -> (i32, Category) {
        match self {
            Evidence::Name(_, category) if !self.strong() => (2, category),
            Evidence::Name(_, category) => (3, category),
            Evidence::Unit(_) | Evidence::Time(_) | Evidence::Jiffies => (4, Category::Interval),
            Evidence::Clamp(_) => (2, Category::Limit),
            Evidence::Loop(_) => (2, Category::Limit),
            Evidence::Compared(_) => (2, Category::Threshold),
            Evidence::Multiplies | Evidence::Divides | Evidence::Shifts => (2, Category::Scaling),
            Evidence::Allocates(_) => (1, Category::Size),
            Evidence::Added | Evidence::Assigned | Evidence::Passed => (1, Category::Other),
        }
    }

    /// It says that something is computed or compared with the number.
    pub fn computes(self) -> bool {
        let weak = matches!(self, Evidence::Allocates(_) | Evidence::Assigned | Evidence::Added | Evidence::Passed);
        !weak && !matches!(self, Evidence::Name(..))
    }

    /// A word that is seldom said of anything but a perf-const.
    pub fn strong(self) -> bool {
        matches!(self, Evidence::Name(word, category) if word != "SHIFT" && !matches!(category, Category::Limit | Category::Size))
    }

    /// As the list shows it.
    pub fn text(self) -> String {
        match self {
            Evidence::Name(word, _) => format!("{word} in its name"),
            Evidence::Unit(unit) => format!("{unit} in its value"),
            Evidence::Time(function) => format!("passed to {function}"),
            Evidence::Jiffies => "computed with jiffies".to_owned(),
            Evidence::Clamp(function) => format!("argument of {function}"),
            Evidence::Loop(operator) => format!("`{operator}` in the head of a loop"),
            Evidence::Compared(operator) => format!("compared with `{operator}`"),
            Evidence::Multiplies => "multiplies".to_owned(),
            Evidence::Divides => "divides".to_owned(),
            Evidence::Shifts => "shift count".to_owned(),
            Evidence::Allocates(function) => format!("passed to {function}"),
            Evidence::Added => "added or subtracted".to_owned(),
            Evidence::Assigned => "assigned".to_owned(),
            Evidence::Passed => "passed to a function".to_owned(),
        }
    }
}

/// Words of names that speak for a category.
const WORDS: [(Category, &str); 7] = [
    (
        Category::Interval,
        "\
         DELAY TIMEOUT TIMEO TMO TMOUT INTERVAL PERIOD TIME MS MSEC MSECS US USEC USECS NS NSEC \
         NSECS SEC SECS SECONDS JIFFIES EXPIRE EXPIRES EXPIRY AGE LIFETIME WAIT SLEEP TICKS \
         DEADLINE LATENCY BACKOFF GRACE RTO SLICE QUANTUM POLL TT HYST AGING COOLDOWN HEARTBEAT \
         KEEPALIVE",
    ),
    (
        Category::Retries,
        "\
         RETRY RETRIES RETR RETRANS ATTEMPTS TRIES RESTART RESTARTS SPIN SPINS",
    ),
    (
        Category::Batch,
        "\
         BATCH BATCHED BUDGET QUOTA CHUNK BURST BULK PREFETCH READAHEAD RA GRANULARITY WEIGHT \
         INCR PREALLOC BREAK",
    ),
    (
        Category::Threshold,
        "\
         THRESH THRESHOLD WATERMARK WMARK HIWAT LOWAT TRIGGER PRESSURE CONGESTION LOW HIGH \
         LOTSAMISS IMBALANCE UTIL BACKGROUND",
    ),
    (
        Category::Scaling,
        "\
         SCALE FACTOR RATIO MULT MULTIPLIER DIV DIVISOR PERCENT PCT PPM GAIN ALPHA EWMA MARGIN \
         DECAY COEF STEPS STEP SHIFT RATE",
    ),
    (
        Category::Limit,
        "\
         MAX MIN LIMIT MAXIMUM MINIMUM COUNT DEPTH LOOPS ROUNDS ITERATIONS NESTS PRIORITY CWND \
         SAMPLES SCAN WRITE DEF DEFAULT NR NUM INIT",
    ),
    (
        Category::Size,
        "\
         CACHE QUEUE QLEN BUFFERS BUFS RQ POOL WINDOW RING BACKLOG ENTRIES BYTES SECTORS PAGES \
         SKBS FOLIOS SIZE",
    ),
];

/// Words of names that speak against: flags, layouts, identifiers, hardware.
const AGAINST: &str = "\
    FLAG FLAGS MASK MASKS BIT BITS OFFSET OFFSETS OFF OFS REG REGS REGISTER ADDR ADDRESS BASE ID IDS \
    IDX INDEX MAGIC OP OPS OPCODE CMD COMMAND TYPE TYPES VERSION VER MAJOR MINOR ERR ERROR STATUS \
    STATE STATES MODE MODES VENDOR DEVICE SIGNATURE IOC ALIGN ALIGNMENT PROTO CODE EVENT KEY CHANNEL \
    PIN GPIO POS LSB MSB CTRL CTL CFG CONFIG STAT FEATURE SEL SELECT VAL VALUE FIELD SHIFT STRUCT \
    NAME NAMELEN STRLEN LEN LENGTH WIDTH HEIGHT HASHSIZE HASH ORDER CLK CLOCK FREQ VOLT VOLTAGE HDR \
    HEADER";

/// Words that nothing outweighs.
const NEVER: &str = "\
    MASK MASKS FLAG FLAGS MAGIC OFFSET OFFSETS OPCODE REG IOCTL BIT ALIGN";

/// Units of time in a value.
const UNITS: &str = "\
    HZ NSEC_PER_USEC NSEC_PER_MSEC NSEC_PER_SEC USEC_PER_MSEC USEC_PER_SEC MSEC_PER_SEC \
    msecs_to_jiffies usecs_to_jiffies secs_to_jiffies";

/// Functions one of whose arguments is a time.
const TIME: &str = "\
    schedule_timeout schedule_timeout_interruptible schedule_timeout_uninterruptible \
    schedule_timeout_killable schedule_timeout_idle schedule_hrtimeout_range io_schedule_timeout \
    msleep msleep_interruptible ssleep fsleep usleep_range mdelay udelay ndelay mod_timer \
    mod_timer_pending timer_reduce queue_delayed_work queue_delayed_work_on schedule_delayed_work \
    schedule_delayed_work_on mod_delayed_work mod_delayed_work_on wait_event_timeout \
    wait_event_interruptible_timeout wait_event_killable_timeout wait_event_freezable_timeout \
    wait_event_idle_timeout wait_for_completion_timeout wait_for_completion_interruptible_timeout \
    wait_for_completion_killable_timeout wait_on_bit_timeout time_after time_before time_after_eq \
    time_before_eq time_after64 time_before64 time_is_before_jiffies time_is_after_jiffies \
    msecs_to_jiffies usecs_to_jiffies nsecs_to_jiffies secs_to_jiffies round_jiffies \
    round_jiffies_relative hrtimer_start ns_to_ktime ms_to_ktime us_to_ktime ktime_add_ms \
    read_poll_timeout blk_mq_delay_run_hw_queue";

/// Functions that choose between amounts.
const CLAMP: &str = "\
    min max min_t max_t min3 max3 clamp clamp_t clamp_val min_not_zero umin umax";

/// Functions that take a size.
const ALLOCATE: &str = "\
    kmalloc kzalloc kvmalloc kvzalloc kcalloc kmalloc_array kvcalloc vmalloc mempool_create";

/// Operators that order.
const ORDER: &str = "< > <= >=";

fn interned(table: &'static str, text: &str) -> Option<&'static str> {
    table.split(' ').find(|known| *known == text)
}

fn has(table: &'static str, text: &str) -> bool {
    interned(table, text).is_some()
}

/// The words of a name, in capitals; `camelCase` is one word.
fn words(name: &str) -> impl Iterator<Item = String> + '_ {
    name.split('_').filter(|word| !word.is_empty()).map(|word| {
        // `THRESH1` is `THRESH`.
        word.trim_end_matches(|c: char| c.is_ascii_digit()).to_ascii_uppercase()
    })
}

/// What the name says, the strongest word of each category.
pub(crate) fn of_name(name: &str) -> Vec<Evidence> {
    let own: Vec<String> = words(name).collect();
    let mut found = Vec::new();
    for (category, table) in WORDS {
        // The last word is the noun: `TIMEOUT_MAX_RETRIES` counts retries.
        if let Some(word) = own.iter().rev().find_map(|word| interned(table, word)) {
            found.push(Evidence::Name(word, category));
        }
    }
    found
}

/// A word of the name says that it is a flag, an identifier or a layout.
pub(crate) fn name_speaks_against(name: &str) -> bool {
    let ends = ["LEN", "LENGTH", "HASHBITS", "BUCKETBITS"];
    words(name).any(|word| has(AGAINST, &word) || ends.iter().any(|end| word.ends_with(end)))
}

/// Nothing else can make up for the name: masks, flags, and factors between units (`NSEC_PER_MSEC`).
pub(crate) fn name_rules_out(name: &str) -> bool {
    let own: Vec<String> = words(name).collect();
    let never = own.iter().any(|word| has(NEVER, word));
    let factor = own.windows(2).any(|pair| {
        pair[0] == "PER" && (pair[1].ends_with("SEC") || matches!(pair[1].as_str(), "MINUTE" | "HOUR" | "DAY"))
    });
    never || factor
}

/// Units of time among the tokens of a value.
pub(crate) fn of_value<'t>(tokens: impl Iterator<Item = &'t str>) -> Vec<Evidence> {
    let mut found: Vec<Evidence> = tokens.filter_map(|text| interned(UNITS, text)).map(Evidence::Unit).collect();
    found.dedup();
    found
}

/// How one mention is used.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Use {
    pub evidence: Vec<Evidence>,
    /// Combined with `|`, `&` or `~`.
    pub flag: bool,
    /// A `case` label, a designator or an index: it names something.
    pub names: bool,
    /// Tested for equality.
    pub equals: bool,
    /// Sizes an array or a member.
    pub sizes: bool,
}

/// Looks at one mention: a name or a literal.
pub(crate) fn of_use(scan: &Scan<'_>, token: usize) -> Use {
    let mut found = Use::default();
    let (mut from, mut to) = (token, token + 1);
    let before = |at: usize, n: usize| at.checked_sub(n).map_or("", |i| scan.text(i));
    let is_name = |at: Option<usize>| at.and_then(|i| scan.tokens.get(i)).is_some_and(|t| t.kind == Kind::Ident);
    while before(from, 1) == "(" && scan.text(to) == ")" && !is_name(from.checked_sub(2)) {
        (from, to) = (from - 1, to + 1);
    }
    let (left, right) = (before(from, 1), scan.text(to));
    let operand_before = from
        .checked_sub(2)
        .and_then(|i| scan.tokens.get(i))
        .is_some_and(|t| t.kind != Kind::Punct || matches!(t.text(scan.source), ")" | "]"));
    let sized = matches!(scan.place(token), Place::Shape(_)) || Finder { path: "", scan }.layout(token).is_some();
    found.sizes = sized;
    found.flag = matches!(left, "|" | "|=" | "&=" | "~" | "^") || matches!(right, "|" | "^" | "&") || left == "&";
    found.names = matches!(left, "case" | "[" | "...") || matches!(right, "..." | "]");
    found.equals = matches!(left, "==" | "!=") || matches!(right, "==" | "!=");
    match left {
        "*=" => found.evidence.push(Evidence::Multiplies),
        "*" if operand_before => found.evidence.push(Evidence::Multiplies),
        "/" | "/=" | "%" | "%=" => found.evidence.push(Evidence::Divides),
        "<<" | ">>" | "<<=" | ">>=" => found.evidence.push(Evidence::Shifts),
        "+" | "-" | "+=" | "-=" if operand_before => found.evidence.push(Evidence::Added),
        "=" | "return" | "?" | ":" => found.evidence.push(Evidence::Assigned),
        "(" | "," if matches!(right, ")" | ",") => found.evidence.push(Evidence::Passed),
        _ => {}
    }
    match right {
        "*" => found.evidence.push(Evidence::Multiplies),
        "+" | "-" | "/" | "%" | "<<" | ">>" => found.evidence.push(Evidence::Added),
        _ => {}
    }
    around(scan, token, &mut found);
    found.evidence.sort_unstable();
    found.evidence.dedup();
    found
}

/// Tokens of an expression that are examined on either side.
const REACH: usize = 28;

/// What the expression around a mention says: comparisons, calls, `jiffies`.
fn around(scan: &Scan<'_>, token: usize, found: &mut Use) {
    let ends = |text: &str| matches!(text, ";" | "{" | "}");
    let (mut depth, mut levels, mut compared) = (0_usize, 0, None);
    for at in (token.saturating_sub(REACH)..token).rev() {
        let text = scan.text(at);
        match text {
            _ if ends(text) => break,
            ")" | "]" => depth += 1,
            "[" if depth == 0 => break,
            "[" => depth -= 1,
            "(" if depth > 0 => depth -= 1,
            "(" => {
                call(at.checked_sub(1).map_or("", |i| scan.text(i)), &mut compared, found);
                levels += 1;
                if levels == 4 {
                    break;
                }
            }
            "," | "&&" | "||" | "?" if depth == 0 && levels == 0 && compared.is_none() => {
                // Another operand begins; only the call around it is still of interest.
                compared = Some("");
            }
            "jiffies" => found.evidence.push(Evidence::Jiffies),
            _ if depth == 0 && compared.is_none() && has(ORDER, text) => compared = interned(ORDER, text),
            _ => {}
        }
    }
    if let Some(operator) = compared.filter(|operator| !operator.is_empty()) {
        found.evidence.push(Evidence::Compared(operator));
        return;
    }
    depth = 0;
    for at in token + 1..(token + REACH / 2).min(scan.tokens.len()) {
        let text = scan.text(at);
        match text {
            "(" | "[" => depth += 1,
            ")" | "]" if depth == 0 => {}
            ")" | "]" => depth -= 1,
            "," | "&&" | "||" | "?" | ":" | "=" if depth == 0 => break,
            _ if ends(text) => break,
            "jiffies" => found.evidence.push(Evidence::Jiffies),
            _ if depth == 0 && has(ORDER, text) => {
                found.evidence.extend(interned(ORDER, text).map(Evidence::Compared));
                break;
            }
            _ => {}
        }
    }
}

/// The call, or the head of a loop, whose parenthesis is passed on the way out.
fn call(callee: &str, compared: &mut Option<&'static str>, found: &mut Use) {
    if let Some(function) = interned(TIME, callee) {
        found.evidence.push(Evidence::Time(function));
    } else if let Some(function) = interned(CLAMP, callee) {
        found.evidence.push(Evidence::Clamp(function));
    } else if let Some(function) = interned(ALLOCATE, callee) {
        found.evidence.push(Evidence::Allocates(function));
    } else if matches!(callee, "while" | "for") {
        if let Some(operator) = compared.take().filter(|operator| !operator.is_empty()) {
            found.evidence.push(Evidence::Loop(operator));
        }
        *compared = Some("");
    } else if callee == "sizeof" || callee.contains("BUG_ON") || callee.contains("static_assert") {
        found.evidence.clear();
        *compared = Some("");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(source: &str) -> Use {
        let text = format!("int f(void)\n{{\n\t{source}\n}}\n");
        let scan = Scan::new(text.as_bytes());
        let token = scan.mentions("X").next().unwrap();
        of_use(&scan, token)
    }

    #[test]
    fn uses_are_told_apart() {
        let evidence = |source: &str| of(source).evidence;
        assert_eq!(evidence("if (count >= X) g();"), [Evidence::Compared(">=")]);
        assert_eq!(evidence("if (X < count) g();"), [Evidence::Compared("<")]);
        assert_eq!(evidence("while (n-- > (X)) g();"), [Evidence::Loop(">")]);
        assert_eq!(evidence("delta *= X;"), [Evidence::Multiplies]);
        assert_eq!(evidence("y = a >> X;"), [Evidence::Shifts]);
        assert_eq!(evidence("y = min_t(int, a, X);"), [Evidence::Clamp("min_t"), Evidence::Passed]);
        assert!(evidence("schedule_timeout(X);").contains(&Evidence::Time("schedule_timeout")));
        assert!(evidence("mod_timer(&t, jiffies + X);").contains(&Evidence::Jiffies));
        assert!(!evidence("BUILD_BUG_ON(sizeof(a) > X);").contains(&Evidence::Compared(">")));
        assert!(evidence("if (a < b && X) g();").is_empty());
    }

    #[test]
    fn what_speaks_against() {
        assert!(of("flags |= X;").flag);
        assert!(of("if (flags & X) g();").flag);
        assert!(of("switch (a) { case X: g(); }").names);
        assert!(of("if (a == X) g();").equals);
        assert!(of("char buffer[X];").sizes);
        assert!(of("y = table[X];").names && !of("y = table[X];").sizes);
    }

    #[test]
    fn names_speak() {
        let categories = |name: &str| -> Vec<&str> { of_name(name).iter().map(|e| e.vote().1.word()).collect() };
        assert_eq!(categories("OOM_REAPER_DELAY"), ["interval"]);
        assert_eq!(categories("SHRINK_BATCH"), ["batch"]);
        assert_eq!(categories("MAX_SOFTIRQ_RESTART"), ["retries", "limit"]);
        assert!(categories("FROBNICATE").is_empty());
        assert!(name_rules_out("TIMER_MASK") && name_rules_out("NSEC_PER_MSEC") && !name_rules_out("BYTES_PER_BATCH"));
        assert!(name_speaks_against("FOO_STATE_MAX") && !name_speaks_against("SHRINK_BATCH"));
    }
}
