//! A provider whose requests and answers are taken down.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _};

use super::super::{EventStream, Fault, Provider, Request, StreamEvent};
use super::script;
use super::tape::{Dialect, Tape, Traffic, break_of};

/// Passes everything on, and notes it. What comes over a wire is taken down there, by the same
/// tape (see [`super::super::Endpoint::tape`]); an answer without a wire is written down here.
pub struct Recording {
    model: String,
    inner: Arc<dyn Provider>,
    tape: Tape,
}

impl Recording {
    /// Takes down what is asked of `inner`, which goes by `model` (`provider/model`).
    pub fn new(model: String, inner: Arc<dyn Provider>, tape: Tape) -> Self {
        Self { model, inner, tape }
    }
}

impl Provider for Recording {
    fn stream<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<EventStream, Fault>> {
        async move {
            self.tape.begin(&self.model, request);
            match self.inner.stream(request).await {
                Ok(stream) => {
                    let tape = self.tape.clone();
                    let noted = stream.inspect(move |event| note(&tape, event));
                    Ok(noted.boxed())
                }
                Err(fault) => {
                    note(&self.tape, &Err(fault.clone()));
                    Err(fault)
                }
            }
        }
        .boxed()
    }
}

fn note(tape: &Tape, event: &Result<StreamEvent, Fault>) {
    match event {
        Ok(StreamEvent::Done(completion)) => {
            if !tape.has_answer() {
                tape.answer_last(script::answer(completion));
            }
            tape.is_over();
        }
        Err(fault) => {
            if !tape.has_answer() {
                tape.answer_last(match fault.status {
                    _ if !fault.partial_text.is_empty() => script::broken(fault),
                    Some(status) => script::refusal(status, fault),
                    None => Traffic::none(Dialect::Script, break_of(fault)),
                });
            }
            tape.is_over();
        }
        Ok(_) => {}
    }
}
