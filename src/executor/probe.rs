//! Which servers are asked before a slot of a job starts, and the asking (semantics §4).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::models::Models;
use crate::config::{Api, Config};
use crate::job::JobSpec;
use crate::plan::{ANSWERED_WITHIN, Server};
use crate::provider::{Locality, probe};

/// The servers of which one must be there before a slot of the job starts; none if it does not
/// depend on servers of this machine or network alone: cloud endpoints are never asked.
pub fn probed_servers(spec: &JobSpec, config: &Config) -> Arc<[Server]> {
    let mut servers = BTreeSet::new();
    for model in std::iter::once(&spec.agent.model).chain(&spec.agent.fallbacks) {
        let base_url = match config.providers().get(&model.provider).map(|it| &it.api) {
            Some(Api::Http { base_url, .. }) => base_url.as_str(),
            Some(Api::Script(_)) | None => return Arc::default(),
        };
        if Locality::of(base_url, &model.provider, &model.model) != Locality::Local {
            return Arc::default();
        }
        servers.insert(Server(base_url.to_owned()));
    }
    servers.into_iter().collect()
}

impl Models {
    /// Whether the server is there.
    pub async fn probe(&self, server: &Server) -> bool {
        let Some((api, base_url)) = self.place_of(server) else { return false };
        let client = match self.client(Locality::Local) {
            Ok(client) => client,
            Err(error) => {
                tracing::error!(%error, "could not ask a model server");
                return false;
            }
        };
        let answer = probe(&client, api, base_url, ANSWERED_WITHIN).await;
        if let Err(why) = &answer {
            let host = base_url.host_str().unwrap_or_default();
            let port = base_url.port_or_known_default();
            tracing::warn!(host, port, why, "a model server cannot be reached");
        }
        answer.is_ok()
    }
}
