//! Marks for the cache of prompts.
//!
//! The API caches what is in front of a mark, in the order tools, system, messages, and takes at
//! most four marks. The tools and the system prompt are the same in every request of a job. The
//! last message is where the next request goes on; the user's before it is where this one goes on,
//! should so many blocks lie in between that the API does not look back that far. What is too
//! short to be cached is not: such a mark costs nothing.

use serde_json::{Value, json};

/// Messages that get a mark, the last ones.
const MESSAGES_MARKED: usize = 2;

/// Marks what a cache should hold.
pub(super) fn mark(body: &mut Value) {
    let tools = body.get_mut("tools").and_then(Value::as_array_mut);
    if let Some(tool) = tools.and_then(|tools| tools.last_mut()) {
        tool["cache_control"] = ephemeral();
    }
    if let Some(system) = body.get_mut("system") {
        mark_last_block(system);
    }
    let messages = body["messages"].as_array_mut().into_iter().flatten();
    let of_user = messages.filter(|message| message["role"] == "user");
    for message in of_user.rev().take(MESSAGES_MARKED) {
        mark_last_block(&mut message["content"]);
    }
}

/// A text becomes a block, as only blocks can be marked. An empty text cannot be.
fn mark_last_block(content: &mut Value) {
    if let Value::String(text) = content {
        if text.is_empty() {
            return;
        }
        *content = json!([{"type": "text", "text": text}]);
    }
    if let Some(block) = content.as_array_mut().and_then(|blocks| blocks.last_mut())
        && block["text"] != ""
    {
        block["cache_control"] = ephemeral();
    }
}

fn ephemeral() -> Value {
    json!({"type": "ephemeral"})
}

#[cfg(test)]
mod tests {
    use super::super::super::message::conversation;
    use super::super::ask::body;
    use super::*;
    use crate::provider::Request;

    fn marks(value: &Value) -> usize {
        value.to_string().matches("cache_control").count()
    }

    #[test]
    fn tools_system_and_the_last_messages_of_the_user_are_marked_and_no_more() {
        let body = body(&conversation()).unwrap();
        assert_eq!(marks(&body), 4);
        let ephemeral = ephemeral();
        assert_eq!(body["tools"][0]["cache_control"], ephemeral);
        assert_eq!(body["system"][0]["cache_control"], ephemeral);
        let messages = body["messages"].as_array().unwrap();
        let marked: Vec<_> = messages
            .iter()
            .filter(|message| marks(message) > 0)
            .map(|message| message["content"].as_array().unwrap().last().unwrap().clone())
            .collect();
        let block = |text: &str| json!({"type": "text", "text": text, "cache_control": ephemeral});
        assert_eq!(marked, [block("hurry"), block("thanks")]);
    }

    #[test]
    fn what_is_empty_or_not_there_is_not_marked() {
        let small = body(&Request::of_prompt("m", "Say hello.")).unwrap();
        assert_eq!(marks(&small), 1);
        let empty = body(&Request::of_prompt("m", "")).unwrap();
        assert_eq!((marks(&empty), &empty["messages"][0]["content"]), (0, &json!("")));
    }
}
