//! GBNF, the grammars of llama.cpp (`root ::= "yes" | "no"`), as Lark.
//!
//! Rules that reach no cycle become terminals, whose texts are matched as one regular expression:
//! no lexer can then cut them in another way than the grammar meant. The others stay rules.

use crate::ffi::Failure;

/// Parentheses in parentheses.
const MAX_DEPTH: usize = 64;

pub fn is_gbnf(source: &str) -> bool {
    source.contains("::=")
}

pub fn to_lark(source: &str) -> Result<String, Failure> {
    let rules = Parser::new(source).rules()?;
    let root = rules
        .iter()
        .position(|rule| rule.name == "root")
        .ok_or_else(|| Failure::invalid_argument("the grammar has no rule named root"))?;
    let rules = resolve(rules)?;
    let terminal = terminals(&rules);
    let name = |index: usize| {
        let prefix = if terminal[index] { "T" } else { "r" };
        format!("{prefix}{index}")
    };
    let mut lark = format!("start: {}\n", name(root));
    for (index, body) in rules.iter().enumerate() {
        lark += &format!("{}: ", name(index));
        write_choice(body, &name, &mut lark);
        lark.push('\n');
    }
    Ok(lark)
}

struct Rule<Reference> {
    name: String,
    body: Choice<Reference>,
}

/// Alternatives, each a sequence.
type Choice<Reference> = Vec<Vec<Item<Reference>>>;

struct Item<Reference> {
    atom: Atom<Reference>,
    /// As Lark writes it: `*`, `+`, `?`, `{2,5}`, or nothing.
    quantifier: String,
}

enum Atom<Reference> {
    Text(String),
    /// A regular expression for one character.
    Class(String),
    Rule(Reference),
    Group(Choice<Reference>),
}

fn resolve(rules: Vec<Rule<String>>) -> Result<Vec<Choice<usize>>, Failure> {
    let mut index_of = std::collections::HashMap::new();
    for (index, rule) in rules.iter().enumerate() {
        if index_of.insert(rule.name.clone(), index).is_some() {
            return Err(Failure::invalid_argument(format!(
                "the grammar has two rules named {}",
                rule.name
            )));
        }
    }
    let find = |name: &str| {
        index_of.get(name).copied().ok_or_else(|| {
            Failure::invalid_argument(format!("the grammar has no rule named {name}"))
        })
    };
    rules
        .into_iter()
        .map(|rule| resolve_choice(rule.body, &find))
        .collect()
}

fn resolve_choice(
    choice: Choice<String>,
    find: &impl Fn(&str) -> Result<usize, Failure>,
) -> Result<Choice<usize>, Failure> {
    let resolve_item = |item: Item<String>| -> Result<Item<usize>, Failure> {
        let atom = match item.atom {
            Atom::Text(text) => Atom::Text(text),
            Atom::Class(class) => Atom::Class(class),
            Atom::Rule(name) => Atom::Rule(find(&name)?),
            Atom::Group(inner) => Atom::Group(resolve_choice(inner, find)?),
        };
        Ok(Item {
            atom,
            quantifier: item.quantifier,
        })
    };
    choice
        .into_iter()
        .map(|sequence| sequence.into_iter().map(resolve_item).collect())
        .collect()
}

fn references(choice: &Choice<usize>, found: &mut Vec<usize>) {
    for item in choice.iter().flatten() {
        match &item.atom {
            Atom::Rule(index) => found.push(*index),
            Atom::Group(inner) => references(inner, found),
            Atom::Text(_) | Atom::Class(_) => {}
        }
    }
}

/// Which rules reach no cycle: those whose references are all of that kind, from the leaves up.
fn terminals(rules: &[Choice<usize>]) -> Vec<bool> {
    let mut users = vec![Vec::new(); rules.len()];
    let mut num_open = vec![0; rules.len()];
    for (index, body) in rules.iter().enumerate() {
        let mut found = Vec::new();
        references(body, &mut found);
        num_open[index] = found.len();
        for used in found {
            users[used].push(index);
        }
    }
    let mut terminal: Vec<bool> = num_open.iter().map(|&open| open == 0).collect();
    let mut ready: Vec<usize> = (0..rules.len()).filter(|&i| terminal[i]).collect();
    while let Some(done) = ready.pop() {
        for &user in &users[done] {
            num_open[user] -= 1;
            if num_open[user] == 0 {
                terminal[user] = true;
                ready.push(user);
            }
        }
    }
    terminal
}

fn write_choice(choice: &Choice<usize>, name: &impl Fn(usize) -> String, lark: &mut String) {
    for (i, sequence) in choice.iter().enumerate() {
        if i > 0 {
            lark.push_str(" | ");
        }
        if sequence.is_empty() {
            lark.push_str("\"\"");
        }
        for (j, item) in sequence.iter().enumerate() {
            if j > 0 {
                lark.push(' ');
            }
            match &item.atom {
                Atom::Text(text) => lark.push_str(&serde_json::Value::from(&**text).to_string()),
                Atom::Class(class) => *lark += &format!("/{class}/"),
                Atom::Rule(index) => lark.push_str(&name(*index)),
                Atom::Group(inner) => {
                    lark.push('(');
                    write_choice(inner, name, lark);
                    lark.push(')');
                }
            }
            lark.push_str(&item.quantifier);
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
    size: usize,
}

impl<'a> Parser<'a> {
    fn new(source: &'a str) -> Self {
        Parser {
            rest: source,
            size: source.len(),
        }
    }

    fn fail<T>(&self, what: &str) -> Result<T, Failure> {
        Err(Failure::invalid_argument(format!(
            "the grammar, at byte {}: {what}",
            self.size - self.rest.len()
        )))
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn skip_space(&mut self) {
        loop {
            self.rest = self.rest.trim_start();
            if !self.rest.starts_with('#') {
                return;
            }
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            self.rest = &self.rest[end..];
        }
    }

    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// A name, or nothing taken.
    fn name(&mut self) -> Option<&'a str> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!name.is_empty()).then_some(name)
    }

    /// A name that begins the next rule.
    fn at_rule(&self) -> bool {
        let mut ahead = Parser {
            rest: self.rest,
            size: self.size,
        };
        if ahead.name().is_none() {
            return false;
        }
        ahead.skip_space();
        ahead.rest.starts_with("::=")
    }

    fn rules(mut self) -> Result<Vec<Rule<String>>, Failure> {
        let mut rules = Vec::new();
        self.skip_space();
        while !self.rest.is_empty() {
            let Some(name) = self.name() else {
                return self.fail("expected the name of a rule");
            };
            self.skip_space();
            if !self.take("::=") {
                return self.fail("expected ::=");
            }
            let body = self.choice(0)?;
            rules.push(Rule {
                name: name.to_owned(),
                body,
            });
        }
        Ok(rules)
    }

    fn choice(&mut self, depth: usize) -> Result<Choice<String>, Failure> {
        if depth > MAX_DEPTH {
            return self.fail("too many parentheses in each other");
        }
        let mut choice = vec![self.sequence(depth)?];
        while self.take("|") {
            choice.push(self.sequence(depth)?);
        }
        Ok(choice)
    }

    fn sequence(&mut self, depth: usize) -> Result<Vec<Item<String>>, Failure> {
        let mut items = Vec::new();
        loop {
            self.skip_space();
            let atom = match self.peek() {
                None | Some('|') | Some(')') => return Ok(items),
                Some('"') => self.text()?,
                Some('[') => self.class()?,
                Some('.') => {
                    self.next();
                    Atom::Class("(?s:.)".to_owned())
                }
                Some('(') => {
                    self.next();
                    let inner = self.choice(depth + 1)?;
                    if !self.take(")") {
                        return self.fail("expected )");
                    }
                    Atom::Group(inner)
                }
                Some(_) if self.at_rule() => return Ok(items),
                Some(_) => match self.name() {
                    Some(name) => Atom::Rule(name.to_owned()),
                    None => return self.fail("expected a string, a class, a name or ("),
                },
            };
            let quantifier = self.quantifier()?;
            items.push(Item { atom, quantifier });
        }
    }

    fn quantifier(&mut self) -> Result<String, Failure> {
        self.skip_space();
        match self.peek() {
            Some(c @ ('*' | '+' | '?')) => {
                self.next();
                Ok(c.to_string())
            }
            Some('{') => {
                let Some(end) = self.rest.find('}') else {
                    return self.fail("expected }");
                };
                let (range, rest) = self.rest.split_at(end + 1);
                let is_part = |c: char| c.is_ascii_digit() || c == ',';
                if !range[1..end].chars().all(is_part) {
                    return self.fail("expected numbers in {}");
                }
                self.rest = rest;
                Ok(range.to_owned())
            }
            _ => Ok(String::new()),
        }
    }

    fn text(&mut self) -> Result<Atom<String>, Failure> {
        self.next();
        let mut text = String::new();
        loop {
            match self.peek() {
                Some('"') => {
                    self.next();
                    return Ok(Atom::Text(text));
                }
                Some(_) => text.push(self.character()?),
                None => return self.fail("a string without its end"),
            }
        }
    }

    fn class(&mut self) -> Result<Atom<String>, Failure> {
        self.next();
        let mut class = String::from(if self.take("^") { "[^" } else { "[" });
        let push = |c: char, class: &mut String| *class += &format!("\\x{{{:X}}}", c as u32);
        loop {
            match self.peek() {
                Some(']') => {
                    self.next();
                    class.push(']');
                    return Ok(Atom::Class(class));
                }
                Some(_) => {
                    let first = self.character()?;
                    push(first, &mut class);
                    if self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                        self.next();
                        if self.peek().is_none() {
                            return self.fail("a class without its end");
                        }
                        let last = self.character()?;
                        class.push('-');
                        push(last, &mut class);
                    }
                }
                None => return self.fail("a class without its end"),
            }
        }
    }

    /// One character, perhaps escaped; there is at least one.
    fn character(&mut self) -> Result<char, Failure> {
        let Some(c) = self.next() else {
            return self.fail("unexpected end");
        };
        if c != '\\' {
            return Ok(c);
        }
        match self.next() {
            Some('n') => Ok('\n'),
            Some('r') => Ok('\r'),
            Some('t') => Ok('\t'),
            Some('x') => self.code_point(2),
            Some('u') => self.code_point(4),
            Some('U') => self.code_point(8),
            Some(c) if !c.is_ascii_alphanumeric() => Ok(c),
            _ => self.fail("unknown escape"),
        }
    }

    fn code_point(&mut self, num_digits: usize) -> Result<char, Failure> {
        let digits = self.rest.get(..num_digits);
        let value = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let Some(c) = value.and_then(char::from_u32) else {
            return self.fail("expected the hexadecimal digits of a character");
        };
        self.rest = &self.rest[num_digits..];
        Ok(c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lark(source: &str) -> String {
        to_lark(source).unwrap_or_else(|failure| panic!("{}", failure.message))
    }

    #[test]
    fn rules_without_cycles_become_terminals() {
        assert_eq!(
            lark("root ::= greeting \" \" [a-z]+ # end\ngreeting ::= \"Hi\" | \"H\\x65llo\"\n"),
            "start: T0\nT0: T1 \" \" /[\\x{61}-\\x{7A}]/+\nT1: \"Hi\" | \"Hello\"\n"
        );
    }

    #[test]
    fn rules_on_cycles_stay_rules() {
        assert_eq!(
            lark("root ::= \"[\" (item (\",\" item)*)? \"]\"\nitem ::= root | [^\\]-]{1,3}"),
            "start: r0\nr0: \"[\" (r1 (\",\" r1)*)? \"]\"\nr1: r0 | /[^\\x{5D}\\x{2D}]/{1,3}\n"
        );
    }

    #[test]
    fn errors_name_the_place() {
        for (source, message) in [
            ("a ::= \"x\"", "no rule named root"),
            ("root ::= b", "no rule named b"),
            ("root ::= \"x", "without its end"),
            ("root ::= (\"x\"", "expected )"),
            ("root ::= [a", "without its end"),
            ("root ::= \"\\q\"", "unknown escape"),
            ("root ::= \"x\"{a}", "expected numbers"),
            ("root ::= \"x\"\nroot ::= \"y\"", "two rules"),
        ] {
            let failure = to_lark(source).err().unwrap();
            assert!(failure.message.contains(message), "{}", failure.message);
        }
        assert!(to_lark(&("root ::= ".to_owned() + &"(".repeat(100_000))).is_err());
    }
}
