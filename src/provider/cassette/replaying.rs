//! A provider that says again what was taken down.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};

use super::super::mask::Mask;
use super::super::response::{Answered, Broken};
use super::super::{EventStream, Fault, FaultClass, Provider, Request};
use super::tape::{Break, Tape, Traffic, headers_of};

/// Answers the first request with the first recorded answer, the second with the second, whatever
/// they ask: what has changed is for those to judge who compare the tapes. Nothing leaves this
/// process.
pub struct Replaying {
    model: String,
    recorded: Arc<[Traffic]>,
    tape: Tape,
}

impl Replaying {
    /// Plays `recorded` under the name of `model`, and takes down on `tape` what is asked.
    pub fn new(model: String, recorded: Arc<[Traffic]>, tape: Tape) -> Self {
        Self { model, recorded, tape }
    }

    async fn answer(&self, request: &Request) -> Result<EventStream, Fault> {
        let n = self.tape.begin(&self.model, request);
        let Some(traffic) = self.recorded.get(n) else {
            let words = format!("the cassette has no answer to request {}", n + 1);
            return Err(Fault::new(FaultClass::BadRequest, words));
        };
        self.tape.answer_last(traffic.clone());
        self.tape.is_over();
        traffic.play().await
    }
}

impl Provider for Replaying {
    fn stream<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<EventStream, Fault>> {
        self.answer(request).boxed()
    }
}

impl Traffic {
    /// The answer, understood as when it came.
    pub async fn play(&self) -> Result<EventStream, Fault> {
        let broke = self.broke.clone();
        let Some(status) = self.status else {
            let broke = broke.unwrap_or_else(|| Break {
                class: FaultClass::Network,
                message: "no response was recorded".to_owned(),
            });
            return Err(Fault::new(broke.class, broke.message));
        };
        let body = Ok(Bytes::from(self.body.clone().into_bytes()));
        let broke = broke.map(|Break { class, message }| Err(Broken { class, message }));
        let body = stream::iter(std::iter::once(body).chain(broke)).boxed();
        let answered = Answered { status, headers: headers_of(self), body };
        answered.listen(self.api.api(), &Arc::<Mask>::default()).await
    }
}
