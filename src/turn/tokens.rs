//! How many tokens a text is, before any provider has counted it.
//!
//! An estimate to the safe side: for ordinary text of any kind it is what the least thrifty of the
//! usual tokenizers makes of it, or a little more. Four characters a token are only true of English
//! prose: digits, hexadecimal text and most scripts come near one a token, and Thai has more tokens
//! than characters. The weights were fitted to counts of six tokenizers; the test has their table.

use crate::provider::{AssistantTurn, Message, ToolDefinition};

/// Weights are in twelfths of a token.
const WHOLE: u64 = 12;

/// What an entry of a conversation costs beside its text: its role and its marks.
const MESSAGE_TOKENS: u64 = 8;

/// What a tool call or the offer of a tool costs beside its texts.
const TOOL_TOKENS: u64 = 16;

/// A run of letters and digits from this length on may be no word: a hash, a key, encoded bytes.
const NOISE_CHARS_MIN: u64 = 8;

/// What a character of such a run costs, in twelfths.
const NOISE_WEIGHT: u64 = 11;

/// The tokens of `text`, estimated to the safe side.
///
/// ```
/// use punctual::turn::tokens_in;
///
/// assert_eq!(tokens_in(""), 0);
/// assert!((8..=12).contains(&tokens_in("The quick brown fox jumps over the lazy dog")));
/// assert!(tokens_in("0123456789") >= 10);
/// ```
pub fn tokens_in(text: &str) -> u64 {
    let mut run = Run::default();
    let (mut weight, mut before, mut last) = (0, Kind::Edge, '\0');
    for char in text.chars() {
        let kind = Kind::of(char);
        if kind.is_of_words() {
            run.add(kind, before);
        } else {
            weight += std::mem::take(&mut run).weight() + kind.weight(before, char == last);
        }
        (before, last) = (kind, char);
    }
    (weight + run.weight()).div_ceil(WHOLE)
}

/// The tokens of one entry of a conversation.
pub fn tokens_of(message: &Message) -> u64 {
    let content = match message {
        Message::User { text } => tokens_in(text),
        Message::Assistant(said) => of_assistant(said),
        Message::ToolResult { name, content, .. } => tokens_in(name) + tokens_in(content),
    };
    MESSAGE_TOKENS + content
}

fn of_assistant(said: &AssistantTurn) -> u64 {
    let thinking = said.thinking.iter().map(|block| tokens_in(&block.to_string()));
    let calls = said.tool_calls.iter().map(|call| {
        let arguments = serde_json::to_string(&call.arguments).unwrap_or_default();
        TOOL_TOKENS + tokens_in(&call.name) + tokens_in(&arguments)
    });
    tokens_in(&said.text) + tokens_in(&said.reasoning) + thinking.chain(calls).sum::<u64>()
}

/// The tokens of what is sent with every request: the system prompt and the tools on offer.
pub fn tokens_of_frame(system: &str, tools: &[ToolDefinition]) -> u64 {
    let tools = tools.iter().map(|tool| {
        let texts = tokens_in(&tool.name) + tokens_in(&tool.description);
        TOOL_TOKENS + texts + tokens_in(&tool.parameters.to_string())
    });
    MESSAGE_TOKENS + tokens_in(system) + tools.sum::<u64>()
}

/// What tokenizers tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The beginning of the text.
    Edge,
    Lower,
    Upper,
    Digit,
    Space,
    /// Line ends, tabs.
    Control,
    Mark,
    /// Latin letters with marks.
    Accented,
    /// The same with two marks, as in Vietnamese.
    TwiceAccented,
    Greek,
    Cyrillic,
    /// Thai and Lao.
    Thai,
    /// The other alphabets: Arabic, Hebrew, Indic.
    Alphabet,
    /// Arrows, boxes, signs.
    Sign,
    Hangul,
    /// Chinese and Japanese.
    Han,
    /// Emoji, and what is rare.
    Rare,
}

impl Kind {
    fn of(char: char) -> Self {
        match char {
            'a'..='z' => Self::Lower,
            'A'..='Z' => Self::Upper,
            '0'..='9' => Self::Digit,
            ' ' => Self::Space,
            '\0'..='\x1f' | '\x7f' => Self::Control,
            '\x21'..='\x7e' => Self::Mark,
            '\u{80}'..='\u{24f}' => Self::Accented,
            '\u{1e00}'..='\u{1eff}' => Self::TwiceAccented,
            '\u{370}'..='\u{3ff}' => Self::Greek,
            '\u{400}'..='\u{52f}' => Self::Cyrillic,
            '\u{e00}'..='\u{eff}' => Self::Thai,
            '\u{1100}'..='\u{11ff}' | '\u{ac00}'..='\u{d7af}' => Self::Hangul,
            '\u{250}'..='\u{1fff}' => Self::Alphabet,
            '\u{2000}'..='\u{2e7f}' => Self::Sign,
            '\u{2e80}'..='\u{faff}' => Self::Han,
            _ => Self::Rare,
        }
    }

    fn is_of_words(self) -> bool {
        matches!(self, Self::Lower | Self::Upper | Self::Digit)
    }

    /// What a character costs, in twelfths. What is said again and again is put together.
    #[expect(clippy::match_same_arms, reason = "each weight was fitted by itself")]
    fn weight(self, before: Self, repeated: bool) -> u64 {
        match self {
            Self::Lower => match before {
                Self::Lower => 3,
                Self::Upper | Self::Accented | Self::TwiceAccented => 4,
                Self::Space => 6,
                Self::Digit => 12,
                _ => 9,
            },
            Self::Upper => match before {
                Self::Upper => 7,
                Self::Lower | Self::Digit => 12,
                _ => 9,
            },
            Self::Digit if before == Self::Digit => 12,
            Self::Digit => 14,
            // One space belongs to the word after it.
            Self::Space => u64::from(before == Self::Space) * 3,
            Self::Control if repeated => 4,
            Self::Control => 16,
            Self::Mark if repeated => 2,
            Self::Mark => 12,
            Self::Sign if repeated => 6,
            Self::Sign => 22,
            Self::Accented => 28,
            Self::TwiceAccented => 30,
            Self::Greek => 15,
            Self::Cyrillic => 7,
            Self::Alphabet | Self::Han => 16,
            Self::Thai => 22,
            Self::Hangul => 28,
            Self::Rare => 54,
            Self::Edge => 0,
        }
    }
}

/// Letters and digits without anything between them.
#[derive(Debug, Default)]
struct Run {
    chars: u64,
    weight: u64,
    /// How often it goes from one kind to another, as words with a capital do not.
    changes: u64,
}

impl Run {
    fn add(&mut self, kind: Kind, before: Kind) {
        let goes_on = before == kind || !before.is_of_words();
        if !goes_on && (before, kind) != (Kind::Upper, Kind::Lower) {
            self.changes += 1;
        }
        self.chars += 1;
        self.weight += kind.weight(before, false);
    }

    fn weight(&self) -> u64 {
        let is_noise = self.chars >= NOISE_CHARS_MIN && self.changes * 4 >= self.chars;
        if is_noise { self.weight.max(self.chars * NOISE_WEIGHT) } else { self.weight }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::provider::ToolCall;

    /// A line, and how many tokens twenty of it are: of the tokenizers of cl100k and o200k, Llama 2,
    /// Llama 3, Mistral and Claude 2, the one that makes the most of it.
    const LINES: &[(&str, &str, u64)] = &[
        (
            "english",
            "Every scheduled instant is accounted for, every run ends on time, and every result is a row.",
            440,
        ),
        (
            "german",
            "Jeder geplante Zeitpunkt wird verbucht, auch bei Geschwindigkeitsbegrenzung für Straßen.",
            560,
        ),
        ("french", "Chaque instant prévu est compté, chaque exécution se termine à l'heure.", 480),
        ("polish", "Każde uruchomienie kończy się na czas, a każdy wynik można odpytać.", 679),
        ("turkish", "Her çalıştırma zamanında biter, her sonuç sorgulanabilir bir satırdır.", 740),
        ("vietnamese", "Mỗi lần chạy đều kết thúc đúng giờ, mỗi kết quả là một dòng.", 1019),
        ("russian", "Каждый запуск заканчивается вовремя, каждый результат можно запросить.", 679),
        ("greek", "Κάθε εκτέλεση τελειώνει εγκαίρως.", 799),
        ("arabic", "كل تشغيل ينتهي في الوقت المحدد", 559),
        ("hebrew", "כל הרצה מסתיימת בזמן, וכל תוצאה היא שורה", 841),
        ("hindi", "हर रन समय पर समाप्त होता है, हर परिणाम एक पंक्ति है।", 1101),
        ("thai", "ทุกการทำงานสิ้นสุดตรงเวลา", 899),
        ("chinese", "每次运行都按时结束，每个结果都是可以查询的一行。", 581),
        ("japanese", "実行は時間どおりに終わり、結果は行になります。", 521),
        ("korean", "모든 실행은 제시간에 끝나며 결과는 행입니다.", 881),
        ("emoji", "✅ done 🚀 🔥 ⚠️ 🇩🇪", 541),
        (
            "rust",
            "    let window = self.begin_attempt(ticket, watchdog, &course.present, holdings).await?;",
            580,
        ),
        (
            "json",
            r#"{"run_id":"01J","state":"succeeded","usage":{"input_tokens":12,"usd":null},"tools":[]}"#,
            740,
        ),
        (
            "minified",
            r#"!function(e,t){"object"==typeof exports&&"undefined"!=typeof module?module.exports=t():0}(this)"#,
            640,
        ),
        ("sql", "SELECT COUNT(*) FROM ORDERS WHERE STATUS = 'OPEN' GROUP BY CUSTOMER_ID;", 561),
        ("markdown", "| due_at    | 12.5  | **ok** |", 360),
        (
            "path",
            "/usr/lib/x86_64-linux-gnu/libssl.so.3 => target/debug/deps/punctual-4f3a9c.rlib",
            880,
        ),
        ("url", "https://example.com/path?session=aZ3kQ9xLm2&token=%7B%22id%22%3A12%7D", 820),
        (
            "log",
            "2026-11-30T23:01:12.345Z  INFO run{job=daily}: executor: run ended state=succeeded duration_ms=31",
            1021,
        ),
        ("digits", "8294035617 2093847561 7738201945", 661),
        ("table", "17,23.290,2026-11-18T09:00:00.000Z,ok", 741),
        ("hex", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", 1201),
        ("uuid", "3f2b8c1e-9d47-4a6f-b2e0-57c8d1a9e634", 741),
        ("base64", "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgi7wq9oZ0PkS3tYv1mXeA8d", 1220),
        ("boxes", "┌──────┬──────┐", 219),
        ("lines", "a", 41),
        ("spaces", "        x                    y", 120),
    ];

    /// What the estimate may be of the highest count: a little less where only one old tokenizer is
    /// that wasteful, and not much more.
    const PER_CENT: std::ops::RangeInclusive<u64> = 94..=160;

    #[test]
    fn ordinary_text_of_every_kind_is_counted_to_the_safe_side() {
        let mut wrong = String::new();
        for &(what, line, highest) in LINES {
            let per_cent = tokens_in(&[line; 20].join("\n")) * 100 / highest;
            if !PER_CENT.contains(&per_cent) {
                let _ = write!(wrong, "{what}: {per_cent} %, ");
            }
        }
        assert!(wrong.is_empty(), "{wrong}");
    }

    #[test]
    fn all_that_is_sent_is_counted() {
        let call = ToolCall {
            id: "c1".to_owned(),
            name: "exec".to_owned(),
            arguments: json!({"command": "df -h"}).as_object().cloned().unwrap_or_default(),
        };
        let said = AssistantTurn {
            text: "one two".to_owned(),
            reasoning: "three four".to_owned(),
            thinking: vec![json!({"thinking": "five six"})],
            tool_calls: vec![call],
        };
        let whole = tokens_of(&Message::Assistant(said.clone()));
        let less = [
            AssistantTurn { text: String::new(), ..said.clone() },
            AssistantTurn { reasoning: String::new(), ..said.clone() },
            AssistantTurn { thinking: Vec::new(), ..said.clone() },
            AssistantTurn { tool_calls: Vec::new(), ..said },
        ];
        for less in less {
            assert!(tokens_of(&Message::Assistant(less.clone())) < whole, "{less:?}");
        }
        let tool = ToolDefinition {
            name: "exec".to_owned(),
            description: "runs a command".to_owned(),
            parameters: json!({"type": "object", "properties": {"command": {"type": "string"}}}),
        };
        let bare = tokens_of_frame("be brief", &[]);
        assert!(tokens_of_frame("be brief", &[tool]) > bare + 30);
        assert!(bare > tokens_of_frame("", &[]));
    }

    proptest! {
        /// No text is fewer tokens than it has words, or more than it has bytes.
        #[test]
        fn the_estimate_is_between_words_and_bytes(text in "\\PC{0,200}") {
            let tokens = tokens_in(&text);
            let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
            let halves = words.count() as u64;
            prop_assert!(tokens * 2 >= halves, "{tokens} for {halves} words");
            prop_assert!(tokens <= 2 * text.len() as u64, "{tokens} for {} bytes", text.len());
        }

        /// A longer text is never fewer tokens, and two texts put together hardly more than both.
        #[test]
        fn the_estimate_grows_with_the_text(a in "\\PC{0,80}", b in "\\PC{0,80}") {
            let (one, two, both) = (tokens_in(&a), tokens_in(&b), tokens_in(&format!("{a}{b}")));
            prop_assert!(both >= one, "{both} after {one}");
            prop_assert!(both <= one + two + 1 + a.len().min(80) as u64 + b.len().min(80) as u64);
        }
    }
}
