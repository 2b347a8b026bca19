//! Static initialisers that mention the constant, apart from the code that does.
//!
//! In: preprocessed C in which the constant is marked. Out: the same text, in which these initialisers have the
//! default, and the objects with their initialisers. The mark stays everywhere else.
//!
//! C demands constants there, so the opaque build has the default in them. The compiler must not conclude anything from
//! that: the objects become *weak*, which means that the linker may choose another definition. A variable of a function
//! moves to the top level for that. What the opaque build can then say is about the code alone; what the objects hold for
//! each value is computed by functions, one for each word ([`functions`]).
//!
//! What is not plainly such an initialiser keeps the mark, and the compiler rejects it. So does one of an object that is weak
//! in the source: afterwards, nobody could tell it from one that has become weak here.

use std::ops::Range;

use crate::prune::{is_word, items, Tokens, NO_NAMES};

/// Stands for the constant in the text.
pub const MARK: &str = "xk_marked";
/// Begins the names of variables that were in functions.
const LOCAL: &str = "xk_local_";
/// The compiler numbers the variables of functions; no unit has so many.
const NUMBERS: u64 = 900_000_000;
const WEAK: &str = "__attribute__((__weak__)) ";

/// A text without marks in initialisers.
#[derive(Debug, Default)]
pub(crate) struct Separated {
    /// The text.
    pub text: String,
    /// The objects that mention the constant.
    pub objects: Vec<Initialised>,
}

/// An object whose initialiser mentions the constant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Initialised {
    /// Its name in the source.
    pub name: String,
    /// The variable of the new text.
    pub variable: String,
    /// The initialiser, with marks.
    pub initialiser: String,
}

/// A word of an object whose initialiser mentions the constant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// The object, by its name in the source.
    pub object: String,
    /// Bytes from its start.
    pub offset: u64,
    /// Bytes: 1, 2, 4 or 8.
    pub width: u8,
}

/// Begins the name of the function that computes a word.
pub const WORD: &str = "xk_word_";

/// Separates `text`; `default` is how the default is written.
pub(crate) fn separate(text: &str, default: &str) -> Separated {
    let whole = || Separated { text: text.to_owned(), objects: Vec::new() };
    let Some(items) = items(text) else { return whole() };
    let mut found = Found { text, default, edits: Vec::new(), objects: Vec::new(), external: Vec::new() };
    for item in &items {
        let tokens = tokens(text, &item.place);
        if !tokens.iter().any(|token| &text[token.clone()] == MARK) {
            continue;
        }
        match item.body {
            Some(body) => found.locals(&tokens, body),
            None => found.global(&tokens),
        }
    }
    for item in items.iter().filter(|item| item.body.is_none()) {
        let tokens = tokens(text, &item.place);
        if found.is_weak(&tokens) {
            return whole();
        }
        found.declared_before(&tokens);
    }
    let Found { mut edits, objects, .. } = found;
    edits.sort_by_key(|(place, _)| (place.start, place.end));
    if edits.windows(2).any(|pair| pair[0].0.end > pair[1].0.start) {
        return whole();
    }
    Separated { text: edited(text, 0..text.len(), &edits), objects }
}

/// Functions that compute `words` of `objects` with `value` in the place of the constant; nothing if a word is in no
/// object, or in one of several with its name.
pub(crate) fn functions(objects: &[Initialised], words: &[Word], value: &str) -> Option<String> {
    let mut text = String::new();
    for (number, word) in words.iter().enumerate() {
        let mut named = objects.iter().filter(|object| object.name == word.object);
        let (Some(object), None) = (named.next(), named.next()) else { return None };
        let kind = match word.width {
            1 => "char",
            2 => "short",
            4 => "int",
            8 => "long",
            _ => return None,
        };
        let (variable, offset) = (&object.variable, word.offset);
        let initialiser = object.initialiser.replace(MARK, value);
        // Without a look at a canary, the function has no branch.
        text.push_str(&format!(
            "\nunsigned long __attribute__((__no_stack_protector__)) {WORD}{number}(void)\n{{\n\
             __typeof__({variable}) xk_copy = {initialiser};\nunsigned {kind} xk_word;\n\
             __builtin_memcpy(&xk_word, (const char *)&xk_copy + {offset}, sizeof(xk_word));\nreturn xk_word;\n}}\n"
        ));
    }
    Some(text)
}

type Edit = (Range<usize>, String);

struct Found<'a> {
    text: &'a str,
    default: &'a str,
    edits: Vec<Edit>,
    objects: Vec<Initialised>,
    /// Objects of the top level, which are no longer static.
    external: Vec<&'a str>,
}

/// The parts of a declaration of one object with an initialiser that has a mark.
struct Parts<'a> {
    name: &'a str,
    /// The token of the name.
    named: Range<usize>,
    /// Where the name and its dimensions end.
    declarator_end: usize,
    initialiser: Range<usize>,
    /// Tokens that say `static`.
    statics: Vec<Range<usize>>,
    marks: Vec<Range<usize>>,
}

impl<'a> Found<'a> {
    /// A declaration of the top level, its semicolon included.
    fn global(&mut self, tokens: &[Range<usize>]) {
        let Some(parts) = parts(self.text, tokens) else { return };
        let start = tokens[0].start;
        self.edits.push((start..start, WEAK.to_owned()));
        self.edits.extend(parts.statics.iter().map(|place| (place.clone(), String::new())));
        self.edits.extend(parts.marks.iter().map(|place| (place.clone(), self.default.to_owned())));
        let initialiser = self.text[parts.initialiser.clone()].to_owned();
        self.objects.push(Initialised { name: parts.name.into(), variable: parts.name.into(), initialiser });
        self.external.push(parts.name);
    }

    /// The variables of a function that are static. They move before it.
    fn locals(&mut self, tokens: &[Range<usize>], body: usize) {
        let text = |at: usize| tokens.get(at).map_or("", |place| &self.text[place.clone()]);
        let starts: Vec<usize> = (body + 1..tokens.len())
            .filter(|&at| text(at) == "static" && matches!(text(at - 1), "{" | "}" | ";"))
            .collect();
        for at in starts {
            let Some(length) = declaration(self.text, &tokens[at..]) else { continue };
            let declaration = &tokens[at..at + length];
            let Some(parts) = parts(self.text, declaration) else { continue };
            let number = self.objects.len();
            let variable = format!("{LOCAL}{number}");
            // It keeps the symbol that the compiler would give it, but for the number.
            let symbol = format!(" __asm__(\"{}.{}\")", parts.name, NUMBERS + number as u64);
            let mut edits: Vec<Edit> = vec![(parts.named.clone(), variable.clone())];
            edits.push((parts.declarator_end..parts.declarator_end, symbol));
            edits.extend(parts.statics.iter().map(|place| (place.clone(), String::new())));
            edits.extend(parts.marks.iter().map(|place| (place.clone(), self.default.to_owned())));
            edits.sort_by_key(|(place, _)| place.start);
            let whole = declaration[0].start..declaration[length - 1].end;
            let moved = format!("{WEAK}{}\n", edited(self.text, whole.clone(), &edits));
            let initialiser = self.text[parts.initialiser.clone()].to_owned();
            self.objects.push(Initialised { name: parts.name.into(), variable: variable.clone(), initialiser });
            self.edits.push((tokens[0].start..tokens[0].start, moved));
            self.edits.push((whole, ";".to_owned()));
            let used = (at + length..self.block_end(tokens, at + length)).filter(|&use_| text(use_) == parts.name);
            let used = used.filter(|&use_| text(use_ - 1) != "." && !(text(use_ - 1) == ">" && text(use_ - 2) == "-"));
            self.edits.extend(used.map(|use_| (tokens[use_].clone(), variable.clone())).collect::<Vec<_>>());
        }
    }

    /// Where the block ends in which the token at `from` stands.
    fn block_end(&self, tokens: &[Range<usize>], from: usize) -> usize {
        let mut depth = 0_usize;
        for (at, token) in tokens.iter().enumerate().skip(from) {
            match &self.text[token.clone()] {
                "{" => depth += 1,
                "}" if depth == 0 => return at,
                "}" => depth -= 1,
                _ => {}
            }
        }
        tokens.len()
    }

    /// Whether the source itself makes an object of the top level weak whose initialiser has a mark.
    fn is_weak(&self, tokens: &[Range<usize>]) -> bool {
        let has = |wanted: &[&str]| tokens.iter().any(|token| wanted.contains(&&self.text[token.clone()]));
        has(&["weak", "__weak__"]) && has(&self.external)
    }

    /// A declaration without initialiser of an object that is no longer static.
    fn declared_before(&mut self, tokens: &[Range<usize>]) {
        let outside = outside(self.text, tokens);
        let words: Vec<&Range<usize>> = outside.iter().map(|&at| &tokens[at]).collect();
        let is = |place: &&&Range<usize>, wanted: &str| &self.text[(**place).clone()] == wanted;
        if words.iter().any(|place| is(&place, "=")) {
            return;
        }
        let names = |place: &&&Range<usize>| self.external.iter().any(|name| is(place, name));
        if let (Some(place), true) = (words.iter().find(|place| is(place, "static")), words.iter().any(|p| names(&p))) {
            self.edits.push(((**place).clone(), "extern".to_owned()));
        }
    }
}

/// The tokens of a part of a text.
fn tokens(text: &str, place: &Range<usize>) -> Vec<Range<usize>> {
    Tokens { text, at: place.start }.take_while(|token| token.end <= place.end).collect()
}

/// The tokens outside of all brackets.
fn outside(text: &str, tokens: &[Range<usize>]) -> Vec<usize> {
    let mut depth = 0_usize;
    let mut outside = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match &text[token.clone()] {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ if depth == 0 => outside.push(at),
            _ => {}
        }
    }
    outside
}

/// How many tokens the declaration has that begins here, its semicolon included.
fn declaration(text: &str, tokens: &[Range<usize>]) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match &text[token.clone()] {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.checked_sub(1)?,
            ";" if depth == 0 => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// Takes a declaration apart; nothing if it does not declare one object, or if a mark is not in its initialiser.
fn parts<'a>(text: &'a str, tokens: &[Range<usize>]) -> Option<Parts<'a>> {
    let word = |at: usize| &text[tokens[at].clone()];
    let outside = outside(text, tokens);
    let equals = *outside.iter().find(|&&at| word(at) == "=")?;
    let alone = outside.iter().all(|&at| word(at) != "," && (word(at) != ";" || at + 1 == tokens.len()));
    if !alone || ["typedef", "extern"].iter().any(|kind| outside.iter().any(|&at| word(at) == *kind)) {
        return None;
    }
    let is_name = |at: usize| {
        let first = word(at).as_bytes()[0];
        is_word(first) && !first.is_ascii_digit() && !NO_NAMES.contains(&word(at))
    };
    let name = *outside.iter().rfind(|&&at| at < equals && is_name(at))?;
    let marks: Vec<Range<usize>> = tokens.iter().filter(|place| &text[(*place).clone()] == MARK).cloned().collect();
    let initialiser = tokens[equals].end..tokens.last()?.start;
    if marks.is_empty() || marks.iter().any(|mark| mark.start < initialiser.start) {
        return None;
    }
    // Dimensions belong to the declarator: what follows the name until the next word outside of them.
    let dimensions = (name + 1..equals).take_while(|&at| !is_name(at) && !NO_NAMES.contains(&word(at)));
    let end = dimensions.filter(|&at| word(at) == "]").last().unwrap_or(name);
    let statics = outside.iter().filter(|&&at| at < equals && word(at) == "static").map(|&at| tokens[at].clone());
    Some(Parts {
        name: word(name),
        named: tokens[name].clone(),
        declarator_end: tokens[end].end,
        initialiser,
        statics: statics.collect(),
        marks,
    })
}

/// A part of a text with some places changed, which are sorted and do not overlap.
fn edited(text: &str, place: Range<usize>, edits: &[Edit]) -> String {
    let mut out = String::with_capacity(place.len());
    let mut from = place.start;
    for (at, new) in edits {
        out.push_str(&text[from..at.start]);
        out.push_str(new);
        from = at.end;
    }
    out.push_str(&text[from..place.end]);
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn separated(text: &str) -> (String, Vec<String>) {
        let Separated { text, objects } = separate(&text.replace("@", MARK), "5");
        let objects = objects.into_iter().map(|found| format!("{}={}", found.variable, found.initialiser.trim()));
        (text.replace(MARK, "@"), objects.collect())
    }

    #[test]
    fn initialisers_have_the_default_and_code_keeps_the_mark() {
        let text = "static int a = 2 * @;\nint f(void) { return a + @; }\n";
        let expected = "__attribute__((__weak__))  int a = 2 * 5;\nint f(void) { return a + @; }\n";
        assert_eq!(separated(text), (expected.to_owned(), vec![format!("a=2 * {MARK}")]));
        let text = "struct s b[2] __attribute__((aligned(8))) = { { .n = @ }, [1] = { @, 3 } };\n";
        let expected =
            "__attribute__((__weak__)) struct s b[2] __attribute__((aligned(8))) = { { .n = 5 }, [1] = { 5, 3 } };\n";
        assert_eq!(separated(text).0, expected);
    }

    #[test]
    fn what_was_declared_static_before_is_not_static_any_more() {
        let text = "static const struct s a;\nstatic int other;\nint f(void) { return a.n; }\nstatic const struct s a = { @ };\n";
        let expected = "extern const struct s a;\nstatic int other;\nint f(void) { return a.n; }\n\
            __attribute__((__weak__))  const struct s a = { 5 };\n";
        assert_eq!(separated(text).0, expected);
    }

    #[test]
    fn a_variable_of_a_function_moves_before_it() {
        let text =
            "int f(struct x *t)\n{\n static const struct s a[] = { { 0, @ } };\n return t->a + a[0].n + g(a, @); }\n";
        let expected =
            "__attribute__((__weak__))  const struct s xk_local_0[] __asm__(\"a.900000000\") = { { 0, 5 } };\n\
            int f(struct x *t)\n{\n ;\n return t->a + xk_local_0[0].n + g(xk_local_0, @); }\n";
        assert_eq!(separated(text).0, expected);
    }

    #[test]
    fn a_name_means_the_variable_in_its_block_only() {
        let text = "int f(int n) { { static int n = @; { n++; } g(n); } return n; }\n";
        let expected = "__attribute__((__weak__))  int xk_local_0 __asm__(\"n.900000000\") = 5;\n\
            int f(int n) { { ; { xk_local_0++; } g(xk_local_0); } return n; }\n";
        assert_eq!(separated(text).0, expected);
    }

    #[test]
    fn what_is_no_initialiser_of_one_object_keeps_the_mark() {
        for text in [
            "int a[@] = { 1 };\n",
            "enum e { A = @ };\n",
            "static int a = 1, b = @;\n",
            "int f(void) { int a = @; return a; }\n",
            "int f(void) { static int a[@] = { 1 }; return a[0]; }\n",
            "_Static_assert(@ == 5, \"\");\n",
            "typedef int t[@];\n",
            "static int a = @; }\n",
            "int __attribute__((weak)) a = @;\n",
            "extern int a __attribute__((__weak__));\nint a = @;\n",
        ] {
            assert_eq!(separated(text), (text.to_owned(), Vec::new()));
        }
    }

    #[test]
    fn words_are_in_one_object_of_their_name() {
        let objects = separate(
            &"static int a = @;\nint f(void) { static int b = @; return b; }\n\
            int g(void) { static int b = @; return b; }\n"
                .replace("@", MARK),
            "5",
        )
        .objects;
        let word = |object: &str, width| Word { object: object.to_owned(), offset: 0, width };
        let text = functions(&objects, &[word("a", 4)], "V").unwrap();
        assert!(text.contains("__typeof__(a) xk_copy =  V;") && text.contains("unsigned int xk_word;"), "{text}");
        assert_eq!(functions(&objects, &[word("b", 4)], "V"), None);
        assert_eq!(functions(&objects, &[word("c", 4)], "V"), None);
        assert_eq!(functions(&objects, &[word("a", 3)], "V"), None);
    }
}
