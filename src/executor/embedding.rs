//! What a program brings along that embeds the library: providers, tools and hooks of its own.

use std::collections::HashMap;
use std::sync::Arc;

use crate::hooks::Hooks;
use crate::provider::Provider;
use crate::tools::Tool;

/// Providers, tools and hooks of the program itself. They stay when files are read again.
#[derive(Clone, Default)]
pub struct Embedding {
    providers: HashMap<String, Arc<dyn Provider>>,
    tools: Vec<Arc<dyn Tool>>,
    hooks: Hooks,
}

impl Embedding {
    /// The same with a provider: it answers for the one that `config.toml` has under this id, with
    /// `api = "embedded"`.
    #[must_use]
    pub fn provider(mut self, id: &str, provider: impl Provider + 'static) -> Self {
        self.providers.insert(id.to_owned(), Arc::new(provider));
        self
    }

    /// The same with a tool. It is offered to every job, beside those that the job names; a native
    /// tool of the same name goes first.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool + 'static) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// The same with these hooks, which are asked beside the commands of `[[hooks]]`.
    #[must_use]
    pub fn hooks(self, hooks: Hooks) -> Self {
        Self { hooks, ..self }
    }

    /// Its hooks.
    pub fn own_hooks(&self) -> &Hooks {
        &self.hooks
    }

    pub(super) fn own_provider(&self, id: &str) -> Option<Arc<dyn Provider>> {
        self.providers.get(id).cloned()
    }

    pub(super) fn own_tools(&self) -> impl Iterator<Item = Arc<dyn Tool>> {
        self.tools.iter().cloned()
    }
}

impl std::fmt::Debug for Embedding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedding")
            .field("providers", &self.providers.keys())
            .field("tools", &self.tools.len())
            .field("hooks", &self.hooks)
            .finish()
    }
}
