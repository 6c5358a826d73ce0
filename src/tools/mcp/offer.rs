//! What a server lists, and what of it is offered.

use globset::GlobMatcher;
use rmcp::model::{PaginatedRequestParams, Tool as Listed};
use rmcp::service::{Peer, RoleClient, ServiceError};

use super::names::Names;
use super::schema;
use super::spec::ServerSpec;
use crate::job::Masker;
use crate::provider::ToolDefinition;

/// The most tools of one server that are offered: no provider takes more in one request.
const OFFERED_MAX: usize = 128;

/// The most tools that are looked at; a list without an end is none.
const LISTED_MAX: usize = 20_000;

/// The most pages of a list; one that turns back to its beginning is noticed by this alone.
const PAGES_MAX: usize = 1000;

/// A longer description is paid for in each request, and helps no more.
const DESCRIPTION_CHARS_MAX: usize = 2000;

/// A tool of a server as it is offered.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Offer {
    /// What the server calls it.
    pub tool: String,
    /// How a model is offered it.
    pub definition: ToolDefinition,
}

/// Why there is no offer.
#[derive(Debug, thiserror::Error)]
pub(super) enum OfferError {
    #[error("list its tools: {0}")]
    List(#[source] ServiceError),
    #[error("its list of tools has no end")]
    Endless,
    #[error("it has no tools")]
    None,
    #[error("none of its tools may be offered (`tools`, [ceilings] tools); it has {0}")]
    NoneAllowed(String),
    #[error(
        "{count} tools are more than the {OFFERED_MAX} that a model can be offered: name those that are needed in `tools`"
    )]
    TooMany { count: usize },
    #[error("the schema of its tool `{tool}` is larger than {} KiB: leave it out with `tools`", schema::SCHEMA_BYTES_MAX / 1024)]
    Schema { tool: String },
}

/// Asks for all tools, page by page.
pub(super) async fn listed(peer: &Peer<RoleClient>) -> Result<Vec<Listed>, OfferError> {
    let mut all = Vec::new();
    let mut cursor = None;
    for _ in 0..PAGES_MAX {
        let mut page = PaginatedRequestParams::default();
        page.cursor = cursor;
        let page = peer.list_tools(Some(page)).await.map_err(OfferError::List)?;
        all.extend(page.tools);
        if all.len() > LISTED_MAX {
            return Err(OfferError::Endless);
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(all);
        }
    }
    Err(OfferError::Endless)
}

/// What is offered of `listed`, in the order of the tools' names: a server may list them in
/// another order each time.
pub(super) fn offers(
    spec: &ServerSpec,
    mut listed: Vec<Listed>,
    masker: &Masker,
) -> Result<Vec<Offer>, OfferError> {
    if listed.is_empty() {
        return Err(OfferError::None);
    }
    listed.sort_by(|a, b| a.name.cmp(&b.name));
    listed.dedup_by(|later, first| later.name == first.name);
    let mut names = Names::default();
    let offered: Vec<_> = listed
        .iter()
        .map(|tool| (names.give(&spec.name, &tool.name), tool))
        .filter(|(name, tool)| may_be_offered(spec, name, &tool.name))
        .collect();
    if offered.is_empty() {
        let few: Vec<_> = listed.iter().take(20).map(|tool| &*tool.name).collect();
        return Err(OfferError::NoneAllowed(masker.mask(&few.join(", ")).into_owned()));
    }
    if offered.len() > OFFERED_MAX {
        return Err(OfferError::TooMany { count: offered.len() });
    }
    let offer = |(name, tool): (String, &Listed)| {
        let parameters = schema::fitted(&tool.input_schema)
            .ok_or_else(|| OfferError::Schema { tool: masker.mask(&tool.name).into_owned() })?;
        let words = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default();
        let description = bounded(&masker.mask(words));
        let definition = ToolDefinition { name, description, parameters };
        Ok(Offer { tool: tool.name.to_string(), definition })
    };
    offered.into_iter().map(offer).collect()
}

fn may_be_offered(spec: &ServerSpec, name: &str, tool: &str) -> bool {
    let is_among = |patterns: &Option<Vec<GlobMatcher>>, text: &str| {
        patterns.as_ref().is_none_or(|all| all.iter().any(|pattern| pattern.is_match(text)))
    };
    is_among(&spec.allowed, tool) && is_among(&spec.ceiling, name)
}

fn bounded(words: &str) -> String {
    match words.char_indices().nth(DESCRIPTION_CHARS_MAX) {
        Some((end, _)) => format!("{} [… cut …]", &words[..end]),
        None => words.to_owned(),
    }
}
