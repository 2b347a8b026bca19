//! The commands of redis-server, as it tells them: which of their words are keys.

use std::collections::{HashMap, HashSet};

/// One of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Command {
    /// The first word that is a key, the last one (from the end if it is negative), and the step; 0: none.
    keys: (i64, i64, i64),
    /// Which words are keys depends on other words.
    moves: bool,
    /// It may write.
    pub writes: bool,
    /// It may wait until a key changes.
    pub waits: bool,
}

impl Command {
    /// The words that are keys; nothing if only redis-server knows.
    #[must_use]
    pub fn keys<'a>(&self, words: &'a [Vec<u8>]) -> Option<Vec<&'a [u8]>> {
        if self.moves {
            return None;
        }
        let (first, last, step) = self.keys;
        let count = i64::try_from(words.len()).ok()?;
        let last = if last < 0 { count + last } else { last.min(count - 1) };
        if first < 1 || step < 1 {
            return Some(Vec::new());
        }
        let step = usize::try_from(step).ok()?;
        let numbers = (first..=last).step_by(step);
        Some(numbers.filter_map(|number| words.get(usize::try_from(number).ok()?)).map(Vec::as_slice).collect())
    }
}

/// A part of a reply.
enum Part {
    Text(String),
    Number(i64),
    Several(Vec<Part>),
}

fn part(bytes: &[u8], at: &mut usize) -> Option<Part> {
    let end = *at + bytes.get(*at..)?.windows(2).position(|pair| pair == b"\r\n")?;
    let (mark, text) = (bytes[*at], std::str::from_utf8(&bytes[*at + 1..end]).ok()?);
    *at = end + 2;
    let number = || text.parse::<i64>().ok();
    Some(match mark {
        b':' => Part::Number(number()?),
        b'$' => {
            let length = usize::try_from(number()?).unwrap_or(0);
            let begin = *at;
            *at = begin + length + 2;
            Part::Text(String::from_utf8_lossy(bytes.get(begin..begin + length)?).into_owned())
        }
        b'*' => Part::Several((0..number()?.max(0)).map(|_| part(bytes, at)).collect::<Option<_>>()?),
        _ => Part::Text(text.to_owned()),
    })
}

/// The commands by their names in upper case, from the reply to `COMMAND`; nothing if it is none.
#[must_use]
pub fn commands(reply: &[u8]) -> Option<HashMap<String, Command>> {
    let Part::Several(all) = part(reply, &mut 0)? else { return None };
    let mut found = HashMap::new();
    for entry in &all {
        let (name, of) = command(entry)?;
        found.insert(name, of);
        // Commands of two words, such as `OBJECT ENCODING`: their keys are behind both.
        if let Part::Several(fields) = entry {
            if let Some(Part::Several(subcommands)) = fields.get(9) {
                for entry in subcommands {
                    let (name, of) = command(entry)?;
                    found.insert(name, of);
                }
            }
        }
    }
    Some(found)
}

/// The command of a request, of which the first word is given in upper case.
#[must_use]
pub fn find<'a>(commands: &'a HashMap<String, Command>, name: &str, words: &[Vec<u8>]) -> Option<&'a Command> {
    let second = words.get(1).map(|word| String::from_utf8_lossy(word).to_uppercase()).unwrap_or_default();
    commands.get(&format!("{name}|{second}")).or_else(|| commands.get(name))
}

/// Its name, number of words, flags, first and last key, step, categories, and more.
fn command(entry: &Part) -> Option<(String, Command)> {
    let Part::Several(fields) = entry else { return None };
    let texts = |at: usize| -> Option<HashSet<String>> {
        let Part::Several(of) = fields.get(at)? else { return None };
        Some(of.iter().filter_map(|part| if let Part::Text(text) = part { Some(text.clone()) } else { None }).collect())
    };
    let number = |at: usize| if let Part::Number(number) = fields.get(at)? { Some(*number) } else { None };
    let Part::Text(name) = fields.first()? else { return None };
    let flags = texts(2)?;
    let command = Command {
        keys: (number(3)?, number(4)?, number(5)?),
        moves: flags.contains("movablekeys"),
        // A script may write.
        writes: flags.contains("write") || flags.contains("movablekeys"),
        waits: flags.contains("blocking"),
    };
    Some((name.to_uppercase(), command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_where_the_server_says() {
        let reply =
            b"*3\r\n*7\r\n$4\r\nmset\r\n:-3\r\n*2\r\n+write\r\n+denyoom\r\n:1\r\n:-1\r\n:2\r\n*1\r\n+@string\r\n\
            *7\r\n$4\r\neval\r\n:-3\r\n*1\r\n+movablekeys\r\n:0\r\n:0\r\n:0\r\n*0\r\n\
            *10\r\n$6\r\nobject\r\n:-2\r\n*0\r\n:0\r\n:0\r\n:0\r\n*0\r\n*0\r\n*0\r\n\
            *1\r\n*7\r\n$11\r\nobject|freq\r\n:3\r\n*1\r\n+readonly\r\n:2\r\n:2\r\n:1\r\n*0\r\n";
        let commands = commands(reply).unwrap();
        let words: Vec<Vec<u8>> = ["mset", "a", "1", "b", "2"].map(Vec::from).to_vec();
        assert_eq!(commands["MSET"].keys(&words).unwrap(), [b"a", b"b"]);
        assert!(commands["MSET"].writes && !commands["MSET"].waits);
        assert_eq!(commands["EVAL"].keys(&words), None);
        let words: Vec<Vec<u8>> = ["Object", "freq", "a"].map(Vec::from).to_vec();
        assert_eq!(find(&commands, "OBJECT", &words).unwrap().keys(&words).unwrap(), [b"a"]);
        assert!(find(&commands, "OBJECT", &words[..1]).unwrap().keys(&words).unwrap().is_empty());
    }
}
