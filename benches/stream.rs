//! How fast streams are parsed. Providers send kilobytes a second; this should be far above it.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use punctual::provider::{Api, Framing, Heard, StreamParser};

fn main() {
    divan::main();
}

/// A long answer as chat completion chunks of one word each.
fn stream(chunks: usize) -> Vec<u8> {
    let chunk = |at: usize| {
        format!(
            "data: {{\"id\":\"chatcmpl-b\",\"object\":\"chat.completion.chunk\",\
             \"created\":1790000000,\"model\":\"m\",\"choices\":[{{\"index\":0,\
             \"delta\":{{\"content\":\" word{at}\"}},\"finish_reason\":null}}]}}\n\n"
        )
    };
    let mut stream: String = (0..chunks).map(chunk).collect();
    stream.push_str("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n");
    stream.push_str("data: [DONE]\n\n");
    stream.into_bytes()
}

/// In pieces as a socket gives them.
#[divan::bench(args = [64, 1400, 16384])]
fn openai(bencher: Bencher<'_, '_>, piece_bytes: usize) {
    let stream = stream(5_000);
    bencher.counter(BytesCount::of_slice(&stream)).bench_local(|| {
        let mut parser = StreamParser::new(Api::OpenAi, Framing::Sse);
        let mut heard = Heard::new();
        for piece in black_box(&stream).chunks(piece_bytes) {
            heard.clear();
            parser.feed(piece, &mut heard);
        }
        assert!(parser.is_over());
        heard
    });
}
