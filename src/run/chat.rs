//! A run as a chat sees it: an answer that grows, and one that stands.
//!
//! A fold over [`RunEvent`]s, so that whoever draws a chat needs nothing but the events.

use serde_json::Value;

use super::event::{Phase, RunEvent, Stream};

/// A message of the chat. Each replaces the one before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chat {
    /// What the model has said so far in this answer.
    Delta {
        /// All of it.
        text: String,
    },
    /// The last message: nothing follows.
    Final {
        /// The model's last words.
        text: String,
        /// How the run ended.
        state: String,
        /// Why it did not succeed.
        error: Option<String>,
    },
}

/// What a chat has heard of one run.
#[derive(Debug, Clone, Default)]
pub struct ChatView {
    text: String,
    is_over: bool,
}

impl ChatView {
    /// Takes in the next event; what there is to draw anew.
    pub fn hear(&mut self, event: &RunEvent) -> Option<Chat> {
        let text = |key: &str| event.data.get(key).and_then(Value::as_str);
        if self.is_over {
            return None;
        }
        match (event.stream, event.phase) {
            (Stream::Assistant, Phase::Start) => {
                self.text.clear();
                None
            }
            (Stream::Assistant, Phase::Update) => {
                self.text.push_str(text("text")?);
                Some(Chat::Delta { text: self.text.clone() })
            }
            (Stream::Assistant, Phase::End) => {
                // Whole again, whatever was lost on the way.
                let whole = text("text").unwrap_or_default();
                let is_news = whole != self.text;
                whole.clone_into(&mut self.text);
                is_news.then(|| Chat::Delta { text: self.text.clone() })
            }
            (Stream::Lifecycle, Phase::End | Phase::Error) => {
                self.is_over = true;
                let error = event.data.get("error").and_then(|it| it.get("message"));
                Some(Chat::Final {
                    text: std::mem::take(&mut self.text),
                    state: text("state").unwrap_or_default().to_owned(),
                    error: error.and_then(Value::as_str).map(str::to_owned),
                })
            }
            (Stream::Lifecycle, Phase::Start | Phase::Update)
            | (Stream::Assistant, Phase::Error)
            | (Stream::Tool | Stream::Compaction, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::RunId;
    use super::*;

    fn event(stream: Stream, phase: Phase, data: Value) -> RunEvent {
        let at = "2026-11-30T09:00:00Z".parse().unwrap();
        let Value::Object(data) = data else { panic!("every event is an object") };
        RunEvent { run_id: RunId::from_stored("r"), seq: 1, at, stream, phase, data }
    }

    // semantics §9: deltas buffered into `delta` messages, one `final` at the terminal event.
    #[test]
    fn a_chat_is_a_fold_over_the_events() {
        use Stream::{Assistant, Lifecycle, Tool};
        let delta = |text: &str| Some(Chat::Delta { text: text.into() });
        let last = Chat::Final { text: "All well.".into(), state: "succeeded".into(), error: None };
        let table = [
            (Lifecycle, Phase::Start, json!({}), None),
            (Assistant, Phase::Start, json!({"request": 1}), None),
            (Assistant, Phase::Update, json!({"reasoning": "hm"}), None),
            (Assistant, Phase::Update, json!({"text": "Let me"}), delta("Let me")),
            (Assistant, Phase::Update, json!({"block": "Let me"}), None),
            (Assistant, Phase::End, json!({"text": "Let me"}), None),
            (Tool, Phase::Update, json!({"output": "x"}), None),
            (Assistant, Phase::Start, json!({"request": 2}), None),
            (Assistant, Phase::Update, json!({"text": "All "}), delta("All ")),
            // A piece was lost.
            (Assistant, Phase::End, json!({"text": "All well."}), delta("All well.")),
            (Lifecycle, Phase::End, json!({"state": "succeeded"}), Some(last)),
            (Lifecycle, Phase::Error, json!({"state": "failed"}), None),
        ];
        let mut view = ChatView::default();
        for (stream, phase, data, expected) in table {
            assert_eq!(view.hear(&event(stream, phase, data.clone())), expected, "{data}");
        }
        let failed = json!({"state": "failed", "error": {"message": "no key"}});
        let found = ChatView::default().hear(&event(Lifecycle, Phase::Error, failed));
        let error = Some("no key".to_owned());
        assert_eq!(found, Some(Chat::Final { text: String::new(), state: "failed".into(), error }));
    }
}
