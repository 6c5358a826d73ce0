//! What a server gives back, as text for a model.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

use crate::tools::tool::{ToolOutcome, Verdict};

/// The most that is put together of a result; what enters the context is cut once more.
const RESULT_BYTES_MAX: usize = 120 * 1024;

/// The outcome of a call that was answered.
pub(super) fn outcome(result: &CallToolResult) -> ToolOutcome {
    let mut text = Joined::default();
    for block in &result.content {
        text.block(block);
    }
    // It says the same as the text, where there is one.
    let has_text = result.content.iter().any(|block| matches!(block, ContentBlock::Text(_)));
    if let (false, Some(structured)) = (has_text, &result.structured_content) {
        text.add(&structured.to_string());
    }
    let verdict = if result.is_error == Some(true) { Verdict::Error } else { Verdict::Ok };
    let content = if text.text.is_empty() { "[no content]".to_owned() } else { text.text };
    ToolOutcome { content, verdict, exit_code: None, output_bytes: text.bytes_total }
}

#[derive(Default)]
struct Joined {
    text: String,
    bytes_total: u64,
}

impl Joined {
    fn block(&mut self, block: &ContentBlock) {
        match block {
            ContentBlock::Text(text) => self.add(&text.text),
            ContentBlock::Image(image) => {
                self.add(&left_out("image", &image.mime_type, &image.data));
            }
            ContentBlock::Audio(audio) => {
                self.add(&left_out("audio", &audio.mime_type, &audio.data));
            }
            ContentBlock::Resource(resource) => self.resource(&resource.resource),
            ContentBlock::ResourceLink(link) => {
                let kind = link.mime_type.as_deref().unwrap_or("unknown type");
                self.add(&format!("[resource {}: {}, {kind}]", link.name, link.uri));
            }
            _ => self.add("[content of an unknown kind]"),
        }
    }

    fn resource(&mut self, resource: &ResourceContents) {
        match resource {
            ResourceContents::TextResourceContents { uri, mime_type, text, .. } => {
                let kind = mime_type.as_deref().unwrap_or("text");
                self.add(&format!("[resource {uri}, {kind}]"));
                self.add(text);
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let kind = mime_type.as_deref().unwrap_or("unknown type");
                self.add(&left_out(&format!("resource {uri}"), kind, blob));
            }
            _ => self.add("[a resource of an unknown kind]"),
        }
    }

    fn add(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.bytes_total += text.len() as u64;
        let mut end = text.len().min(RESULT_BYTES_MAX.saturating_sub(self.text.len()));
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.text.push_str(&text[..end]);
    }
}

/// What there is to say of bytes that no model is given.
fn left_out(what: &str, kind: &str, base64: &str) -> String {
    let padding = base64.bytes().rev().take_while(|&byte| byte == b'=').count();
    let bytes = (base64.len() / 4 * 3).saturating_sub(padding);
    format!("[{what}, {kind}, {bytes} bytes, left out]")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(result: serde_json::Value) -> ToolOutcome {
        outcome(&serde_json::from_value(result).unwrap())
    }

    #[test]
    fn text_is_joined_and_everything_else_is_told_about() {
        let content = json!([
            {"type": "text", "text": "one"},
            {"type": "image", "data": "AAAAAA==", "mimeType": "image/png"},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "a:1", "mimeType": "text/csv", "text": "x,y"}},
            {"type": "resource", "resource": {"uri": "a:2", "blob": "AAAA"}},
            {"type": "resource_link", "uri": "a:3", "name": "three"},
        ]);
        let got = told(json!({"content": content, "structuredContent": {"same": "as text"}}));
        let want = "one\n[image, image/png, 4 bytes, left out]\n\
                    [audio, audio/wav, 3 bytes, left out]\n[resource a:1, text/csv]\nx,y\n\
                    [resource a:2, unknown type, 3 bytes, left out]\n\
                    [resource three: a:3, unknown type]";
        assert_eq!((got.content.as_str(), got.verdict), (want, Verdict::Ok));
    }

    #[test]
    fn structured_content_stands_in_for_text() {
        let got = told(json!({"content": [], "structuredContent": {"n": 1}}));
        assert_eq!(got.content, "{\"n\":1}");
        assert_eq!(told(json!({"content": []})).content, "[no content]");
        let failed = told(json!({"content": [{"type": "text", "text": "no"}], "isError": true}));
        assert_eq!(failed, ToolOutcome::new(Verdict::Error, "no"));
    }

    #[test]
    fn a_large_result_is_cut_and_its_size_is_told() {
        let text = "é".repeat(300_000);
        let block = json!({"type": "text", "text": text});
        let got = told(json!({"content": [block, block]}));
        assert_eq!(got.output_bytes, 1_200_000);
        assert!(got.content.len() <= RESULT_BYTES_MAX + 1, "{}", got.content.len());
    }
}
