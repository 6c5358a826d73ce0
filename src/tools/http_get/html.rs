//! From a page to the text that a reader would see.
//!
//! Made for what is on the web, not for a standard: it never fails, looks at each byte a fixed
//! number of times, and gives up nothing but markup. Links stay, with their addresses made whole,
//! since whoever reads may want to go on.

use std::fmt::Write as _;

use url::Url;

use super::body::TEXT_BYTES_MAX;

/// Elements whose content nobody reads.
const UNSEEN: &[&str] = &["script", "style", "template", "svg", "math", "iframe", "object"];

/// Elements that stand on lines of their own.
const BLOCKS: &[&str] = &[
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "caption",
    "dd",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "header",
    "hr",
    "li",
    "main",
    "nav",
    "ol",
    "option",
    "p",
    "pre",
    "section",
    "select",
    "summary",
    "table",
    "tbody",
    "textarea",
    "thead",
    "title",
    "tr",
    "ul",
];

/// A longer address is a program or a picture.
const HREF_BYTES_MAX: usize = 1000;

/// Links are not nested; where they are, somebody plays.
const LINKS_OPEN_MAX: usize = 16;

/// The readable text of `html`, which was at `at`.
pub(super) fn readable(html: &str, at: &Url) -> String {
    // Of the same length, so that places in one are places in the other.
    let lower = html.to_ascii_lowercase();
    let mut page = Page { at, out: String::new(), gap: Gap::None, pre: 0, links: Vec::new() };
    let mut rest = 0;
    while rest < html.len() && page.out.len() <= TEXT_BYTES_MAX {
        let Some(start) = html[rest..].find('<').map(|found| rest + found) else {
            page.text(&html[rest..]);
            break;
        };
        page.text(&html[rest..start]);
        rest = match markup(&lower, start) {
            Markup::Text => {
                page.text("<");
                start + 1
            }
            Markup::Nothing { end } => end,
            Markup::Tag { name, end } => {
                let tag = &html[start..end];
                match name.strip_prefix('/') {
                    Some(name) => page.close(name),
                    None => page.open(name, tag),
                }
                if UNSEEN.contains(&name) && !tag.ends_with("/>") {
                    find(&lower, &format!("</{name}"), end)
                } else {
                    end
                }
            }
        };
    }
    page.out.trim_matches('\n').to_owned()
}

enum Markup<'a> {
    /// Only a character.
    Text,
    /// A comment, or a declaration.
    Nothing { end: usize },
    /// A tag; the name of a closing one begins with a slash.
    Tag { name: &'a str, end: usize },
}

/// What begins with the `<` at `start`.
fn markup(lower: &str, start: usize) -> Markup<'_> {
    let after = &lower[start + 1..];
    if after.starts_with("!--") {
        let end = find(lower, "-->", start + 4);
        return Markup::Nothing { end: (end + 3).min(lower.len()) };
    }
    if after.starts_with(['!', '?']) {
        return Markup::Nothing { end: (find(lower, ">", start) + 1).min(lower.len()) };
    }
    let slash = usize::from(after.starts_with('/'));
    let named = after[slash..].find(|char: char| !char.is_ascii_alphanumeric() && char != '-');
    let length = named.unwrap_or(after.len() - slash);
    if !after[slash..].starts_with(|char: char| char.is_ascii_alphabetic()) {
        return Markup::Text;
    }
    Markup::Tag { name: &after[..slash + length], end: end_of_tag(lower, start) }
}

/// Past the `>` of the tag at `start`; one in quotes is none.
fn end_of_tag(lower: &str, start: usize) -> usize {
    let mut quote = None;
    for (at, byte) in lower.bytes().enumerate().skip(start) {
        match (quote, byte) {
            (None, b'>') => return at + 1,
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    lower.len()
}

/// Where `what` is next, or the end.
fn find(text: &str, what: &str, from: usize) -> usize {
    let from = from.min(text.len());
    text[from..].find(what).map_or(text.len(), |found| from + found)
}

/// What has to come before the next word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    None,
    Space,
    Line,
    Paragraph,
}

struct Page<'a> {
    at: &'a Url,
    out: String,
    gap: Gap,
    /// How many `pre` are open.
    pre: usize,
    /// Where the text of each open link begins, and where it leads.
    links: Vec<(usize, Option<String>)>,
}

impl Page<'_> {
    fn open(&mut self, name: &str, tag: &str) {
        match name {
            "br" => self.wants(Gap::Line),
            "p" | "blockquote" | "table" | "pre" => self.wants(Gap::Paragraph),
            "td" | "th" => self.wants(Gap::Space),
            _ if BLOCKS.contains(&name) => self.wants(Gap::Line),
            _ => {}
        }
        match name {
            "pre" => self.pre += 1,
            "li" => self.word("- "),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.wants(Gap::Paragraph);
                self.word("# ");
            }
            "a" if self.links.len() < LINKS_OPEN_MAX => {
                let leads = attribute(tag, "href").and_then(|href| self.whole(&href));
                self.links.push((self.out.len(), leads));
            }
            "img" => {
                let words = attribute(tag, "alt").filter(|words| !words.trim().is_empty());
                if let Some(words) = words {
                    self.text(&format!("[image: {words}]"));
                }
            }
            _ => {}
        }
    }

    fn close(&mut self, name: &str) {
        match name {
            "pre" => self.pre = self.pre.saturating_sub(1),
            "a" => {
                if let Some((start, Some(leads))) = self.links.pop()
                    && self.out[start..].trim() != ""
                {
                    let _ = write!(self.out, " ({leads})");
                }
            }
            _ => {}
        }
        match name {
            "p" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "table" | "pre" | "title" => {
                self.wants(Gap::Paragraph);
            }
            "td" | "th" => self.wants(Gap::Space),
            _ if BLOCKS.contains(&name) => self.wants(Gap::Line),
            _ => {}
        }
    }

    fn wants(&mut self, gap: Gap) {
        self.gap = self.gap.max(gap);
    }

    fn text(&mut self, raw: &str) {
        if raw.is_empty() {
            return;
        }
        let text = decoded(raw);
        if self.pre > 0 {
            self.word(&text);
            return;
        }
        if text.starts_with(char::is_whitespace) {
            self.wants(Gap::Space);
        }
        for word in text.split_whitespace() {
            self.word(word);
            self.gap = Gap::Space;
        }
        if !text.ends_with(char::is_whitespace) && self.gap == Gap::Space && !text.trim().is_empty()
        {
            self.gap = Gap::None;
        }
    }

    fn word(&mut self, word: &str) {
        let gap = match std::mem::replace(&mut self.gap, Gap::None) {
            Gap::None => "",
            Gap::Space if self.out.ends_with(char::is_whitespace) => "",
            Gap::Space => " ",
            Gap::Line => "\n",
            Gap::Paragraph => "\n\n",
        };
        if !self.out.is_empty() {
            self.out.push_str(gap);
        }
        self.out.push_str(word);
    }

    /// The whole address, of a link that leads to a page.
    fn whole(&self, href: &str) -> Option<String> {
        if href.starts_with('#') {
            return None;
        }
        let url = self.at.join(href).ok()?;
        let is_page = matches!(url.scheme(), "http" | "https");
        (is_page && url.as_str().len() <= HREF_BYTES_MAX).then(|| url.to_string())
    }
}

/// The value of an attribute of `tag`.
fn attribute(tag: &str, name: &str) -> Option<String> {
    let lower = tag.to_ascii_lowercase();
    let mut from = 0;
    loop {
        let start = lower[from..].find(name).map(|found| from + found)?;
        from = start + name.len();
        let stands_alone = lower[..start].ends_with(|char: char| char.is_ascii_whitespace());
        let Some(value) = tag[from..].trim_start().strip_prefix('=').filter(|_| stands_alone)
        else {
            continue;
        };
        let value = value.trim_start();
        let quoted = ['"', '\'']
            .into_iter()
            .find_map(|quote| value.strip_prefix(quote)?.split(quote).next());
        let bare = || value.split(|char: char| char.is_ascii_whitespace() || char == '>').next();
        return Some(decoded(quoted.or_else(bare)?).trim().to_owned());
    }
}

/// Names of characters that pages use; others stay as they are written.
const NAMED: &[(&str, &str)] = &[
    ("amp", "&"),
    ("lt", "<"),
    ("gt", ">"),
    ("quot", "\""),
    ("apos", "'"),
    ("nbsp", " "),
    ("shy", ""),
    ("mdash", "—"),
    ("ndash", "–"),
    ("hellip", "…"),
    ("lsquo", "‘"),
    ("rsquo", "’"),
    ("ldquo", "“"),
    ("rdquo", "”"),
    ("laquo", "«"),
    ("raquo", "»"),
    ("bull", "•"),
    ("middot", "·"),
    ("copy", "©"),
    ("reg", "®"),
    ("trade", "™"),
    ("deg", "°"),
    ("times", "×"),
    ("euro", "€"),
    ("pound", "£"),
    ("yen", "¥"),
    ("sect", "§"),
    ("para", "¶"),
    ("plusmn", "±"),
    ("micro", "µ"),
    ("frac12", "½"),
    ("larr", "←"),
    ("rarr", "→"),
    ("auml", "ä"),
    ("ouml", "ö"),
    ("uuml", "ü"),
    ("Auml", "Ä"),
    ("Ouml", "Ö"),
    ("Uuml", "Ü"),
    ("szlig", "ß"),
    ("eacute", "é"),
    ("egrave", "è"),
    ("agrave", "à"),
    ("ccedil", "ç"),
    ("ntilde", "ñ"),
];

/// The longest name that is looked for, with room for numbers.
const NAME_BYTES_MAX: usize = 10;

/// `raw` with its characters put in for their names.
fn decoded(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(start) = rest.find('&') {
        text.push_str(&rest[..start]);
        rest = &rest[start + 1..];
        let name = rest.bytes().take(NAME_BYTES_MAX).position(|byte| byte == b';');
        match name.and_then(|end| Some((end, character(&rest[..end])?))) {
            Some((end, meant)) => {
                text.push_str(&meant);
                rest = &rest[end + 1..];
            }
            None => text.push('&'),
        }
    }
    text.push_str(rest);
    text
}

fn character(name: &str) -> Option<String> {
    let number = name.strip_prefix('#').map(|digits| match digits.strip_prefix(['x', 'X']) {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => digits.parse(),
    });
    match number {
        Some(number) => Some(char::from_u32(number.ok()?)?.to_string()),
        None => NAMED.iter().find(|(known, _)| *known == name).map(|(_, it)| (*it).to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(html: &str) -> String {
        readable(html, &Url::parse("https://example.org/a/b").unwrap())
    }

    #[test]
    fn a_page_becomes_what_a_reader_sees() {
        let page = "<!DOCTYPE html><html><head><title>Status &mdash; today</title>\
            <style>p { color: red }</style><script>if (a < b) { alert('<p>no</p>') }</script></head>\
            <body><!-- <p>hidden</p> --><h1>All   is\n well</h1><p>Three jobs <b>ran</b>, <i>two</i> \
            failed: see <a href='../why?x=1&amp;y=2'>why</a>.</p><ul><li>one<li>two</ul>\
            <table><tr><th>job<th>state<tr><td>a<td>ok</table><pre>  x = 1\n  y = 2</pre>\
            <img alt=\"a cat\" src=x><p>5 &lt; 6 &#233; &#x2014; &unknown; & so</body></html>";
        let want = "Status — today\n\n# All is well\n\nThree jobs ran, two failed: see why \
            (https://example.org/why?x=1&y=2).\n\n- one\n- two\n\njob state\na ok\n\n  x = 1\n  y = 2\
            \n\n[image: a cat]\n\n5 < 6 é — &unknown; & so";
        assert_eq!(text(page), want);
    }

    #[test]
    fn hostile_markup_neither_fails_nor_takes_long() {
        for (html, want) in [
            ("", ""),
            ("<", "<"),
            ("a < b", "a < b"),
            ("<p", ""),
            ("<a href=\"x", ""),
            ("</", "</"),
            ("<!--", ""),
            ("<!-->x", ""),
            ("<script>x", ""),
            ("<script>x</script", ""),
            ("<script>a</SCRIPT >b", "b"),
            ("&#xffffffff;&#55296;&;&", "&#xffffffff;&#55296;&;&"),
            ("<a href=javascript:alert(1)>x</a>", "x"),
            ("<a data-href='no' href = yes >x</a>", "x (https://example.org/a/yes)"),
            ("</a></pre></p>x", "x"),
            ("é<é>é&é;", "é<é>é&é;"),
            ("<p>a</p\u{a0}>b", "a\n\nb"),
        ] {
            assert_eq!(text(html), want, "{html}");
        }
        for piece in
            ["<", "<p ", "<!--", "<script>", "&", "<a href='", "<pre>", "</", "<a>", "<svg"]
        {
            let html = piece.repeat(200_000);
            assert!(text(&html).len() <= html.len(), "{piece}");
        }
    }
}
