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
    let Some(agent) = spec.agent() else { return Arc::default() };
    for model in std::iter::once(&agent.model).chain(&agent.fallbacks) {
        let base_url = match config.providers().get(&model.provider).map(|it| &it.api) {
            Some(Api::Http { base_url, .. }) => base_url.as_str(),
            Some(Api::Script(_) | Api::Embedded) | None => return Arc::default(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Sources, load, load_jobs};
    use crate::job::Environment;

    #[test]
    fn only_jobs_whose_models_all_run_here_ask_before() {
        let dir = tempfile::tempdir().unwrap();
        let http = |name: &str, url: &str| {
            format!("[models.providers.{name}]\napi = \"openai\"\nbase_url = \"http://{url}\"\n")
        };
        let config = [
            "[agents.defaults]\nfallbacks = []\n".to_owned(),
            http("here", "127.0.0.1:1/v1"),
            http("also-here", "127.0.0.1:1/v1"),
            http("near", "192.168.1.9/v1"),
            http("ollama", "127.0.0.1:1/v1"),
            http("hosted", "ollama-host:1/v1"),
            http("cloud", "api.example.com/v1"),
            "[models.providers.script]\napi = \"script\"\nscript = \"s.toml\"\n".to_owned(),
        ];
        std::fs::write(dir.path().join("config.toml"), config.concat()).unwrap();
        std::fs::write(dir.path().join("s.toml"), "[[rule]]\nstep = [{ text = \"x\" }]\n").unwrap();
        std::fs::create_dir(dir.path().join("jobs")).unwrap();
        let (here, near) = ("http://127.0.0.1:1/v1", "http://192.168.1.9/v1");
        let table: [(&str, &[&str], &[&str]); 8] = [
            ("here/m", &[], &[here]),
            ("here/m", &["also-here/m"], &[here]),
            ("here/m", &["near/m"], &[here, near]),
            ("here/m", &["cloud/m"], &[]),
            ("here/m", &["script/m"], &[]),
            ("cloud/m", &["here/m"], &[]),
            ("hosted/m", &[], &[]),
            ("ollama/m:cloud", &["here/m"], &[]),
        ];
        for (n, (model, fallbacks, _)) in table.iter().enumerate() {
            let text = format!(
                "[agent]\nprompt = \"x\"\nmodel = \"{model}\"\nfallbacks = {fallbacks:?}\n"
            );
            std::fs::write(dir.path().join(format!("jobs/j{n}.toml")), text).unwrap();
        }
        let sources = Sources {
            config_paths: vec![dir.path().join("config.toml")],
            state_dir: None,
            environment: Environment::fixed([]),
            current_dir: dir.path().to_owned(),
        };
        let config = load(&sources).unwrap().0;
        let jobs = load_jobs(&config);
        assert!(jobs.invalid.is_empty(), "{:?}", jobs.invalid);
        for (spec, (model, fallbacks, expected)) in jobs.jobs.values().zip(table) {
            let servers = probed_servers(spec, &config);
            let found: Vec<_> = servers.iter().map(|server| server.0.as_str()).collect();
            assert_eq!(found, expected, "{model} {fallbacks:?}");
        }
    }
}
