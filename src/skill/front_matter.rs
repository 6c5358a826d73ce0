//! The beginning of a `SKILL.md`: what it says of the skill, or one reason why it says nothing.

use serde::Deserialize;
use serde_json::Value;

use super::needs::Needs;

/// The longest name, in characters; also of a folder.
const NAME_CHARS_MAX: usize = 64;

/// The longest description (Agent Skills).
pub const DESCRIPTION_CHARS_MAX: usize = 1024;

/// The longest beginning: that of a real skill has a few hundred bytes.
const FRONT_BYTES_MAX: usize = 64 * 1024;

/// As much of the words of a parser is passed on.
const WHY_CHARS_MAX: usize = 200;

/// What a `SKILL.md` says of its skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Front {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) needs: Needs,
}

/// What is looked at; whatever else is there belongs to others.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Written {
    name: Value,
    description: Value,
    metadata: Value,
    #[serde(rename = "disable-model-invocation")]
    is_hidden: Value,
}

/// Reads the text of a `SKILL.md`.
pub(super) fn parse(text: &str) -> Result<Front, String> {
    let written = yaml(front_of(text)?)?;
    let name = as_text(&written.name, "name")?;
    if let Some(why) = name_problem(name) {
        return Err(why);
    }
    let description = description(as_text(&written.description, "description")?)?;
    let mut needs = Needs::read(&written.metadata)?;
    match written.is_hidden {
        Value::Null | Value::Bool(false) => {}
        Value::Bool(true) => needs.is_for_people_only(),
        _ => return Err("`disable-model-invocation` is neither true nor false".to_owned()),
    }
    Ok(Front { name: name.to_owned(), description, needs })
}

/// The lines between the two lines of dashes.
fn front_of(text: &str) -> Result<&str, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut at = 0;
    for (n, line) in text.split_inclusive('\n').enumerate() {
        let is_rule = line.trim_end() == "---";
        match (n, is_rule) {
            (0, false) => return Err("it does not begin with a line `---`".to_owned()),
            (1.., true) => return Ok(text[..at].split_once('\n').map_or("", |(_, front)| front)),
            _ => at += line.len(),
        }
        if at > FRONT_BYTES_MAX {
            return Err(format!("what is before the second `---` is over {FRONT_BYTES_MAX} bytes"));
        }
    }
    Err("there is no second line `---`".to_owned())
}

fn yaml(front: &str) -> Result<Written, String> {
    // Nothing that grows: no anchors, little depth. A real one has a hundred events at most.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_reader_input_bytes: Some(FRONT_BYTES_MAX),
            max_events: 5_000,
            max_aliases: 0,
            max_anchors: 0,
            max_depth: 32,
            max_documents: 1,
            max_nodes: 5_000,
        },
        // `y` and `on` are texts.
        strict_booleans: true,
        with_snippet: false,
    };
    if front.trim().is_empty() {
        return Ok(Written::default());
    }
    serde_saphyr::from_str_with_options(front, options).map_err(|error| {
        let words = error.to_string();
        let line = words.split_whitespace().collect::<Vec<_>>().join(" ");
        let short: String = line.chars().filter(|c| !is_unfit(*c)).take(WHY_CHARS_MAX).collect();
        format!("its YAML is wrong: {short}")
    })
}

fn as_text<'a>(value: &'a Value, key: &str) -> Result<&'a str, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Null => Err(format!("it has no `{key}`")),
        _ => Err(format!("its `{key}` is not a text")),
    }
}

/// Why `name` cannot be a skill's.
pub fn name_problem(name: &str) -> Option<String> {
    let is_fit = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if begins && name.len() <= NAME_CHARS_MAX && name.chars().all(is_fit) {
        return None;
    }
    let shown: String = name.chars().take(NAME_CHARS_MAX).collect();
    Some(format!(
        "`{}` cannot be a skill's name: 1 to {NAME_CHARS_MAX} of a-z, 0-9, `_` and `-`, beginning \
         with a letter or digit",
        shown.escape_debug()
    ))
}

/// One line, without anything that could be taken for something else.
fn description(text: &str) -> Result<String, String> {
    if text.chars().any(|c| is_unfit(c) && !matches!(c, '\n' | '\r' | '\t')) {
        return Err("its description holds control characters".to_owned());
    }
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.chars().count() {
        0 => Err("its description is empty".to_owned()),
        length if length > DESCRIPTION_CHARS_MAX => {
            Err(format!("its description has {length} characters, at most {DESCRIPTION_CHARS_MAX}"))
        }
        _ => Ok(line),
    }
}

/// Characters that move a cursor, hide what is there or turn the direction of writing.
fn is_unfit(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn front(yaml: &str) -> Result<Front, String> {
        parse(&format!("---\n{yaml}\n---\n# Title\n\nDo it.\n"))
    }

    #[test]
    fn both_formats_are_read() {
        let plain = "name: house-style\ndescription: >\n  How we\n  write.\nlicense: MIT\n\
                     allowed-tools: Bash(git:*) Read\nmetadata:\n  author: x\n  version: \"1.0\"";
        let read = front(plain).unwrap();
        assert_eq!(
            (read.name.as_str(), read.description.as_str()),
            ("house-style", "How we write.")
        );
        assert_eq!(read.needs, Needs::default());
        let with_needs = "name: gh\ndescription: \"Issues: by gh\"\nmetadata: {\"openclaw\": \
                          {\"emoji\": \"🐙\", \"os\": [\"linux\"], \"requires\": {\"bins\": [\"gh\"]}}}";
        assert_ne!(front(with_needs).unwrap().needs, Needs::default());
        let windows = "\u{feff}---\r\nname: x\r\ndescription: y\r\n---\r\n";
        assert_eq!(parse(windows).unwrap().name, "x");
    }

    // A skill with hostile front matter: one clear reason, whatever it is.
    #[test]
    fn hostile_front_matter_is_one_reason_in_one_line() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..9 {
            let of = format!("*a{}", n - 1);
            writeln!(bomb, "a{n}: &a{n} [{of}, {of}, {of}, {of}, {of}, {of}, {of}, {of}]").unwrap();
        }
        let anchored = "base: &b {x: 1}\nname: x\ndescription: y\nmetadata: {<<: *b}";
        let deep = format!("name: x\ndescription: y\nmetadata: {}", "[".repeat(10_000));
        let large = format!("name: x\ndescription: {}", "y".repeat(2 << 20));
        let wide = format!("name: x\ndescription: y\nmetadata: [{}]", "1,".repeat(20_000));
        let long = format!("name: x\ndescription: {}", "y".repeat(1025));
        let table: &[(&str, &str)] = &[
            (&bomb, "its YAML is wrong"),
            (anchored, "its YAML is wrong"),
            (&deep, "its YAML is wrong"),
            (&wide, "its YAML is wrong"),
            (&large, "over 65536 bytes"),
            (&long, "1025 characters, at most 1024"),
            ("name: x", "no `description`"),
            ("description: y", "no `name`"),
            ("", "no `name`"),
            ("name: [x]\ndescription: y", "`name` is not a text"),
            ("name: x\ndescription: {a: b}", "`description` is not a text"),
            ("name: x\nname: y\ndescription: z", "its YAML is wrong"),
            ("name: x\ndescription: \"\"", "description is empty"),
            ("name: ../etc\ndescription: y", "cannot be a skill's name"),
            ("name: a/b\ndescription: y", "cannot be a skill's name"),
            ("name: \"a\\0b\"\ndescription: y", "cannot be a skill's name"),
            ("name: \"a\\nb\"\ndescription: y", "cannot be a skill's name"),
            ("name: Upper\ndescription: y", "cannot be a skill's name"),
            ("name: \"\"\ndescription: y", "cannot be a skill's name"),
            ("name: x\ndescription: \"a\\e[2Jb\"", "control characters"),
            ("name: x\ndescription: \"a\\u202eb\"", "control characters"),
            ("name: x\ndescription: y\ndisable-model-invocation: maybe", "neither true nor false"),
            ("name: x\ndescription: y\nmetadata: {openclaw: 1}", "metadata.openclaw"),
            ("- a\n- b", "its YAML is wrong"),
            ("name: x\ndescription: y: z", "its YAML is wrong"),
        ];
        for (yaml, words) in table {
            let why = front(yaml).unwrap_err();
            assert!(why.contains(words), "{why} of {}", &yaml[..yaml.len().min(60)]);
            assert!(why.chars().count() < 300 && !why.contains(char::is_control), "{why:?}");
        }
        assert!(parse("# Title\n").unwrap_err().contains("does not begin"));
        assert!(parse("").unwrap_err().contains("no second line"));
        assert!(parse("---\nname: x\n").unwrap_err().contains("no second line"));
    }
}
