//! `show JOB --prompt`: what the job's model would see now.

use serde_json::{Value, json};

use super::context::now;
use super::output::{self, Done, Failed, counted};
use super::run;
use super::scheduled::Scheduled;
use super::show::Args;
use crate::clock::to_millis;
use crate::config::{Config, JobSet};
use crate::daemon::variables_of;
use crate::executor::{Preview, preview};
use crate::store::{PromptPartRecord, Reader};
use crate::turn::PartReport;

/// As of a run by hand, now or for `--slot`.
pub(super) fn show_prompt(
    job: &str,
    config: &Config,
    jobs: &JobSet,
    history: Option<&Reader>,
    args: &Args,
) -> Done {
    let scheduled = Scheduled::find(job, config, jobs)?;
    let spec = &scheduled.spec;
    let Some(agent) = spec.agent() else {
        return Err(Failed::usage(format!("`{job}` is a command: it asks no model")));
    };
    let slot = args.slot.as_deref().map(|text| run::slot(text, job, config)).transpose()?;
    let variables = variables_of(spec, scheduled.schedule.as_ref(), slot, to_millis(now()));
    let seen = preview(config, spec, agent, history, &variables)
        .map_err(|failure| Failed::usage(format!("error: {}", failure.message)))?;
    if args.json { output::json(&in_json(job, &seen)) } else { output::say(&in_words(&seen)) }
}

fn in_json(job: &str, seen: &Preview) -> Value {
    let tools: Vec<_> = seen
        .tools
        .iter()
        .map(|it| json!({ "name": it.name, "description": it.description, "parameters": it.parameters }))
        .collect();
    let parts: Vec<_> = seen.report.iter().map(PromptPartRecord::from).collect();
    json!({
        "job": job, "model": seen.model, "system": seen.system,
        "messages": [{ "role": "user", "content": seen.prompt }], "tools": tools, "parts": parts,
    })
}

/// The texts as they are; around them what they are.
fn in_words(seen: &Preview) -> String {
    let mut lines = vec![
        format!("=== system, to {}", seen.model),
        seen.system.clone(),
        "=== message from user".to_owned(),
        seen.prompt.clone(),
    ];
    for tool in &seen.tools {
        lines.push(format!("=== tool {}", tool.name));
        lines.push(tool.description.clone());
        lines.push(tool.parameters.to_string());
    }
    lines.push(format!("=== {}", summary(&seen.report)));
    let parts = seen.report.iter().filter(|part| part.note.is_some());
    lines.extend(parts.map(|part| {
        let name = part.name.as_deref().unwrap_or_default();
        format!("{} {name}: {}", part.kind, part.note.as_deref().unwrap_or_default())
    }));
    lines.join("\n")
}

fn summary(report: &[PartReport]) -> String {
    let parts: Vec<_> = report.iter().map(PromptPartRecord::from).collect();
    summary_of(&parts)
}

/// A prompt in one line: how long it is, and what of it was cut or left out.
pub(super) fn summary_of(parts: &[PromptPartRecord]) -> String {
    let sum = |of: fn(&PromptPartRecord) -> i64| parts.iter().map(of).sum::<i64>();
    let characters = usize::try_from(sum(|it| it.characters)).unwrap_or(0);
    let mut words = format!(
        "{} in {}, about {} tokens",
        counted(characters, "character"),
        counted(parts.iter().filter(|it| it.characters > 0).count(), "part"),
        sum(|it| it.tokens)
    );
    let cut = sum(|it| it.characters_cut);
    if cut > 0 {
        words += ", ";
        words += &counted(usize::try_from(cut).unwrap_or(0), "character");
        words += " cut";
    }
    let left_out: Vec<_> = parts
        .iter()
        .filter(|it| it.characters == 0 && it.characters_cut == 0)
        .filter_map(|it| it.name.as_deref())
        .collect();
    if !left_out.is_empty() {
        words += ", without ";
        words += &left_out.join(", ");
    }
    words
}
