//! `skills install|update|ls|remove`: the skills in the state folder.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::context::{Context, block_on, now};
use super::output::{self, Done, Failed, counted, note};
use crate::clock::{SystemClock, rfc3339};
use crate::config::{self, Config, InstallPolicy};
use crate::hooks::{BeforeInstall, HookSite, Hooks, Nobody, Place};
use crate::job::Masker;
use crate::process::{Household, SupervisorPath, adopt_orphans};
use crate::skill::install::{NotInstalled, Noted, Shop, Source, Staged, fetch, remove, stage};
use crate::skill::{Shelf, Shelves, Skill, World, name_problem};

/// From TERM to KILL of what hooks have left.
const HOOKS_GRACE: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Install a skill from a folder, an archive or a git repository
    Install(Install),
    /// Fetch installed skills anew from where they came from
    Update(Update),
    /// List the skills that jobs can name
    Ls(Ls),
    /// Remove an installed skill
    Remove(Remove),
}

#[derive(Debug, clap::Args)]
struct Install {
    /// A folder, an archive (.tar, .tar.gz, .tgz), or the address of a git repository
    source: String,
    /// Where in it the skill is, if there are several
    #[arg(long, value_name = "DIR")]
    path: Option<String>,
    /// A branch or tag of the repository
    #[arg(long = "ref", value_name = "REF")]
    reference: Option<String>,
    /// Also in place of one that is installed already
    #[arg(long)]
    force: bool,
    /// Print for programs
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Update {
    /// The skill; without it all that were installed
    name: Option<String>,
    /// Print for programs
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Ls {
    /// Print for programs
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Remove {
    /// The skill
    name: String,
    /// Print for programs
    #[arg(long)]
    json: bool,
}

impl From<NotInstalled> for Refusal {
    fn from(error: NotInstalled) -> Self {
        Self::Wrong(error.0)
    }
}

/// Why a skill is not installed.
enum Refusal {
    /// It cannot be.
    Wrong(String),
    /// It may not be.
    Refused(String),
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Wrong(words) => Self::usage(format!("error: {words}")),
            Refusal::Refused(words) => Self::refused(words),
        }
    }
}

pub(super) fn skills(context: &Context, args: &Args) -> Done {
    match &args.verb {
        Verb::Install(args) => install(context, args),
        Verb::Update(args) => update(context, args),
        Verb::Ls(args) => ls(context, args),
        Verb::Remove(args) => take_away(context, args),
    }
}

/// What to bring where.
struct Order<'a> {
    source: &'a Source,
    reference: Option<&'a str>,
    path: Option<&'a str>,
    is_fit: &'a dyn Fn(&Staged) -> Result<Fit, Refusal>,
}

/// Whether what was staged is to be moved into place.
enum Fit {
    Wanted,
    /// It is there already.
    Same,
}

/// What became of a skill.
#[derive(Serialize)]
struct Installed {
    skill: String,
    /// `installed`, `updated` or `unchanged`.
    result: &'static str,
    source: String,
    digest: String,
    doubts: Vec<String>,
}

fn install(context: &Context, args: &Install) -> Done {
    let config = context.without_need_of_secrets().config()?;
    let source = Source::parse(&args.source, &std::env::current_dir()?).map_err(Failed::usage)?;
    let shelf = config.skills.installed.clone();
    let is_fit = |staged: &Staged| {
        let name = &staged.skill.name;
        if args.force || shelf.join(name).symlink_metadata().is_err() {
            return Ok(Fit::Wanted);
        }
        let from = Noted::read(&shelf, name).map_or("by hand".to_owned(), |it| it.source);
        Err(Refusal::Refused(format!(
            "`{name}` is installed already (from {from}): `punctual skills update {name}` fetches it \
             anew, --force installs this one in its place"
        )))
    };
    let order = Order {
        source: &source,
        reference: args.reference.as_deref(),
        path: args.path.as_deref(),
        is_fit: &is_fit,
    };
    let shop = Shop::open(&config.skills.installed).map_err(Refusal::from)?;
    let installed = block_on(bring(&config, &shop, &order))??;
    if args.json {
        return output::json(&installed);
    }
    let Installed { skill, digest, .. } = &installed;
    output::say(&format!(
        "`{skill}` is installed ({}); a job has it by skills = [\"{skill}\"]",
        &digest[..12]
    ))
}

/// Fetches, stages, asks whoever may refuse, and moves into place.
async fn bring(config: &Config, shop: &Shop, order: &Order<'_>) -> Result<Installed, Refusal> {
    adopt_orphans().map_err(|error| Refusal::Wrong(error.to_string()))?;
    shop.tidy()?;
    let into = shop.fetched();
    std::fs::create_dir(&into).map_err(|error| Refusal::Wrong(error.to_string()))?;
    let folder = fetch(order.source, order.reference, order.path, &into).await?;
    let staged = stage(&folder, &shop.staged())?;
    let source = order.source.in_words();
    let is_there = config.skills.installed.join(&staged.skill.name).exists();
    let result = match (order.is_fit)(&staged)? {
        Fit::Same => "unchanged",
        Fit::Wanted => {
            allow(config.skills.policy, &staged)?;
            let action = if is_there { "update" } else { "install" };
            ask_hooks(config, shop, &staged, &source, action).await?;
            let noted = Noted {
                source: source.clone(),
                reference: order.reference.map(str::to_owned),
                path: order.path.map(str::to_owned),
                digest: staged.digest.clone(),
                installed_at: rfc3339(now()),
            };
            shop.place(&staged, &noted)?;
            if is_there { "updated" } else { "installed" }
        }
    };
    let Staged { skill, digest, doubts, .. } = staged;
    Ok(Installed { skill: skill.name, result, source, digest, doubts })
}

/// The operator's decision (`security.install_policy`).
fn allow(policy: InstallPolicy, staged: &Staged) -> Result<(), Refusal> {
    let Staged { skill, doubts, .. } = staged;
    match policy {
        InstallPolicy::Allow => {}
        InstallPolicy::Warn => {
            for doubt in doubts {
                note(&format!("warning: the skill `{}`: {doubt}", skill.name));
            }
        }
        InstallPolicy::Block => {
            let why = "security.install_policy = \"block\"".to_owned();
            let why: Vec<_> = std::iter::once(&why).chain(doubts).cloned().collect();
            let (name, why) = (&skill.name, why.join("; "));
            return Err(Refusal::Refused(format!("`{name}` is not installed: {why}")));
        }
    }
    Ok(())
}

/// The hooks of the configuration, after the operator's policy (semantics §8, `before_install`).
async fn ask_hooks(
    config: &Config,
    shop: &Shop,
    staged: &Staged,
    source: &str,
    action: &str,
) -> Result<(), Refusal> {
    let household = Household::new(SupervisorPath::current_exe(), "skills");
    let place = Place {
        household: household.clone(),
        inbox: shop.inbox(),
        masker: Arc::new(Masker::new(config.target_secrets())),
        clock: Arc::new(SystemClock),
    };
    let hooks = Arc::new(Hooks::of_config(&config.hooks));
    let site = HookSite::new(hooks, place, Arc::new(Nobody));
    let name = &staged.skill.name;
    let verdict = site
        .ask(BeforeInstall {
            kind: "skill".to_owned(),
            name: name.clone(),
            source: source.to_owned(),
            staged: staged.folder.clone(),
            action: action.to_owned(),
        })
        .await;
    household.end_all(HOOKS_GRACE).await;
    match verdict.blocked {
        None => Ok(()),
        Some(no) => Err(Refusal::Refused(format!(
            "`{name}` is not installed: the hook {} refuses it: {}",
            no.by, no.reason
        ))),
    }
}

fn update(context: &Context, args: &Update) -> Done {
    let config = context.without_need_of_secrets().config()?;
    let shelf = &config.skills.installed;
    let names = match &args.name {
        Some(name) => vec![installed_name(shelf, name)?],
        None => Shelves::names_at(shelf),
    };
    let shop = Shop::open(shelf).map_err(Refusal::from)?;
    let (mut done, mut worst) = (Vec::new(), None);
    for name in names {
        match block_on(update_one(&config, &shop, &name))? {
            Ok(installed) => done.push(installed),
            // The others are no worse for it.
            Err(refusal) => {
                let failed = Failed::from(refusal);
                note(&format!("{name}: {}", failed.words()));
                worst = worst.max(Some(failed.code()));
            }
        }
    }
    if args.json {
        output::json(&json!({ "skills": done }))?;
    } else {
        for Installed { skill, result, source, .. } in &done {
            output::say(&format!("{skill}: {result} ({source})"))?;
        }
        if done.is_empty() && worst.is_none() {
            output::say("no skill is installed")?;
        }
    }
    Ok(worst.map_or(ExitCode::SUCCESS, ExitCode::from))
}

async fn update_one(config: &Config, shop: &Shop, name: &str) -> Result<Installed, Refusal> {
    let shelf = &config.skills.installed;
    let Some(noted) = Noted::read(shelf, name) else {
        return Err(Refusal::Wrong("it is not noted where it came from".to_owned()));
    };
    let source = Source::parse(&noted.source, Path::new("/")).map_err(Refusal::Wrong)?;
    let is_fit = |staged: &Staged| {
        if staged.skill.name != name {
            return Err(Refusal::Wrong(format!(
                "what is there now is called `{}`",
                staged.skill.name
            )));
        }
        let is_whole = shelf.join(name).join("SKILL.md").is_file();
        Ok(if staged.digest == noted.digest && is_whole { Fit::Same } else { Fit::Wanted })
    };
    let order = Order {
        source: &source,
        reference: noted.reference.as_deref(),
        path: noted.path.as_deref(),
        is_fit: &is_fit,
    };
    bring(config, shop, &order).await
}

fn installed_name(shelf: &Path, name: &str) -> Result<String, Failed> {
    if name_problem(name).is_none() && shelf.join(name).symlink_metadata().is_ok() {
        return Ok(name.to_owned());
    }
    let known = Shelves::names_at(shelf);
    let near = crate::job::nearest(name, known.iter().map(String::as_str));
    let hint = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    Err(Failed::usage(format!("no skill `{name}` is installed{hint}")))
}

/// A skill as it is listed.
#[derive(Serialize)]
struct Listed {
    skill: String,
    shelf: Shelf,
    folder: String,
    description: Option<String>,
    /// Why it cannot be used.
    problem: Option<String>,
    source: Option<String>,
    digest: Option<String>,
    installed_at: Option<String>,
    jobs: Vec<String>,
}

fn ls(context: &Context, args: &Ls) -> Done {
    let config = context.without_need_of_secrets().config()?;
    let jobs = config::load_jobs(&config);
    let shelves = config.skills.shelves(&crate::job::Workdir::Fresh);
    let mut all: Vec<Listed> = Vec::new();
    for (shelf, place) in shelves.places() {
        for name in Shelves::names_at(&place) {
            // One of the same name on an earlier shelf is meant.
            if all.iter().any(|it| it.skill == name) {
                continue;
            }
            let noted =
                Noted::read(&config.skills.installed, &name).filter(|_| shelf == Shelf::Installed);
            let world: World = config.skills.world(
                &config
                    .skills
                    .env_with(&crate::job::EnvSpec::default(), std::slice::from_ref(&name)),
                &config.environment,
            );
            let found: Result<Skill, _> = shelves.find(&name);
            let named = jobs
                .jobs
                .values()
                .filter(|spec| spec.agent().is_some_and(|agent| agent.skills.contains(&name)));
            all.push(Listed {
                folder: place.join(&name).display().to_string(),
                description: found.as_ref().ok().map(|it| it.description.clone()),
                problem: match &found {
                    Ok(skill) => skill.needs.unmet(&world),
                    Err(error) => Some(error.to_string()),
                },
                source: noted.as_ref().map(|it| it.source.clone()),
                digest: noted.as_ref().map(|it| it.digest.clone()),
                installed_at: noted.map(|it| it.installed_at),
                jobs: named.map(|spec| spec.id.to_string()).collect(),
                skill: name,
                shelf,
            });
        }
    }
    if args.json {
        return output::json(&json!({ "skills": all }));
    }
    let row = |it: &Listed| {
        let words = it.problem.as_ref().or(it.description.as_ref());
        vec![
            it.skill.clone(),
            it.shelf.to_string(),
            it.source.clone().unwrap_or_else(|| it.folder.clone()),
            counted(it.jobs.len(), "job"),
            output::first_line(words.map_or("", String::as_str), 60),
        ]
    };
    if all.is_empty() {
        return output::say("there is no skill: `punctual skills install`, or [skills] dirs");
    }
    let rows = all.iter().map(row).collect();
    output::say(&output::table(&["skill", "place", "from", "named by", "for"], rows))
}

fn take_away(context: &Context, args: &Remove) -> Done {
    let config = context.without_need_of_secrets().config()?;
    let name = installed_name(&config.skills.installed, &args.name)?;
    let jobs = config::load_jobs(&config);
    let shop = Shop::open(&config.skills.installed).map_err(Refusal::from)?;
    remove(&shop, &name).map_err(Refusal::from)?;
    for spec in jobs.jobs.values() {
        if spec.agent().is_some_and(|agent| agent.skills.contains(&name)) {
            note(&format!("warning: `{}` names it", spec.id));
        }
    }
    if args.json {
        return output::json(&json!({ "skill": name, "result": "removed" }));
    }
    output::say(&format!("`{name}` is removed"))
}
