//! `[agent] mcp`: the MCP servers whose tools are on offer.

use super::ceilings::refusal_of_server;
use super::parse::Reader;

/// Between the name of a server and that of its tool, in the name under which that is offered.
pub(crate) const MCP_MARK: &str = "__";

/// The servers that the job names, each once and each there.
pub(super) fn mcp(reader: &mut Reader<'_>) -> Vec<String> {
    let key = "agent.mcp";
    let mut servers: Vec<String> = Vec::new();
    for (name, node) in reader.node.texts(key).unwrap_or_default() {
        let refusal = if servers.iter().any(|known| known == name) {
            Some((format!("the MCP server `{name}` is named twice"), None))
        } else {
            match reader.around.mcp.resolve(name) {
                Err(unresolved) => Some((unresolved.message, unresolved.help)),
                Ok(()) => refusal_of_server(reader, name).map(|(why, help)| (why, Some(help))),
            }
        };
        match refusal {
            Some((message, help)) => {
                reader.problems.push(node.error(key, message).with_help(help));
            }
            None => servers.push(name.to_owned()),
        }
    }
    servers
}
