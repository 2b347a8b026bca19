//! Patterns of keys, as `KEYS` and `SCAN` take them. Source: Redis 7.0's documentation of `KEYS`, and what its
//! `stringmatchlen()` does with patterns that are not whole.

/// What a pattern says of one byte.
fn one(pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    match pattern {
        [b'?', rest @ ..] => (true, rest),
        [b'[', rest @ ..] => class(rest, byte),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (*literal == byte, rest),
        [] => (false, pattern),
    }
}

/// Behind `[`. Without its end, the rest of the pattern is the class.
fn class(mut pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let mut is_in = false;
    let negated = pattern.strip_prefix(b"^").inspect(|rest| pattern = rest).is_some();
    loop {
        match pattern {
            [b'\\', literal, rest @ ..] => {
                is_in |= *literal == byte;
                pattern = rest;
            }
            [b']', rest @ ..] => return (is_in != negated, rest),
            [] => return (is_in != negated, pattern),
            [from, b'-', to, rest @ ..] => {
                is_in |= (*from.min(to)..=*from.max(to)).contains(&byte);
                pattern = rest;
            }
            [literal, rest @ ..] => {
                is_in |= *literal == byte;
                pattern = rest;
            }
        }
    }
}

/// Whether a key matches. It takes a time of the product of both lengths at most.
pub(crate) fn is_match(mut pattern: &[u8], mut key: &[u8]) -> bool {
    // redis-server does not look at other patterns for an empty key.
    if key.is_empty() {
        return pattern.is_empty() || pattern == b"*";
    }
    // Behind the last `*`, and what of the key was not tried there.
    let mut star = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            pattern = rest;
            star = Some((rest, key));
            continue;
        }
        let matched = match key {
            [] if pattern.is_empty() => return true,
            [] => false,
            [byte, rest @ ..] => {
                let (is_it, next) = one(pattern, *byte);
                if is_it {
                    pattern = next;
                    key = rest;
                }
                is_it
            }
        };
        if !matched {
            match star {
                Some((behind, [_, rest @ ..])) => {
                    (pattern, key) = (behind, rest);
                    star = Some((behind, rest));
                }
                _ => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_match;

    #[test]
    fn patterns_of_the_documentation() {
        let check = |pattern: &str, yes: &[&str], no: &[&str]| {
            for key in yes {
                assert!(is_match(pattern.as_bytes(), key.as_bytes()), "{pattern} {key}");
            }
            for key in no {
                assert!(!is_match(pattern.as_bytes(), key.as_bytes()), "{pattern} {key}");
            }
        };
        check("h?llo", &["hello", "hxllo"], &["hllo", "heello"]);
        check("h*llo", &["hllo", "heeeello", "hllollo"], &["hell"]);
        check("h[ae]llo", &["hello", "hallo"], &["hillo", "hllo"]);
        check("h[^e]llo", &["hallo"], &["hello"]);
        check("h[b-a]llo", &["hallo", "hbllo"], &["hcllo"]);
        check("h\\?", &["h?"], &["hx", "h\\?"]);
        check("*", &["", "a"], &[]);
        check("", &[""], &["a"]);
        check("**", &["a"], &[""]);
        check("a*b*c", &["abc", "axxbyyc", "abcbc"], &["ab", "acb"]);
        check("[ab", &["a", "b"], &["c", "ab"]);
    }

    #[test]
    fn many_stars_do_not_take_for_ever() {
        let pattern = b"a*".repeat(200);
        assert!(!is_match(&[&pattern[..], b"b"].concat(), &b"a".repeat(5000)));
    }
}
