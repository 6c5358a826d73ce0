//! The first words of every system prompt.

/// Whether a turn has tools on offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tools {
    /// At least one.
    Some,
    /// None.
    None,
}

/// The base of every system prompt. Nothing in it changes from run to run of a job, so that a
/// provider's cache can hold it.
pub fn base(job: &str, has_tools: Tools) -> String {
    let tools = of_tools(has_tools);
    format!(
        "You are the agent of the scheduled job `{job}`. You run unattended: nobody answers \
         questions or confirms anything.{tools} Your last message is the report that is stored \
         and sent on: complete, in itself, and only what you found."
    )
}

/// The same for a turn that a person has asked for and that belongs to no job.
pub fn base_of_message(has_tools: Tools) -> String {
    let tools = of_tools(has_tools);
    format!(
        "You are the agent that somebody talks to by messages. Nobody confirms anything while you \
         work.{tools} Your last message is the answer."
    )
}

fn of_tools(has_tools: Tools) -> &'static str {
    match has_tools {
        Tools::Some => {
            " Use the tools to find out what is so; do not guess what a tool can tell you. Paths \
             are relative to your workspace. A tool call that is refused stays refused: go on \
             without it and say so."
        }
        Tools::None => "",
    }
}
