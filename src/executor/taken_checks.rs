//! Checks that look at the world, taken down and answered from what was taken down.

use std::path::Path;

use super::checks::CLOCK_STEP;
use super::run::Executor;
use super::site::Site;
use crate::cassette::{Deck, Plays, SeenCommand, SeenFile};
use crate::job::Check;

impl Executor {
    /// What the cassette says to a check that only the world could answer; `None` for the others,
    /// and where the world plays.
    pub(super) fn on_cassette(&self, what: &Check) -> Option<Result<(), String>> {
        let deck = self.deck.as_ref().filter(|deck| deck.plays() == Plays::Cassette)?;
        match what {
            Check::File { path, fresh, min_bytes } => Some(of_file(deck, path, *fresh, *min_bytes)),
            Check::Command(argv) => Some(of_command(deck, argv)),
            // The reply and the ledger of this run are here.
            Check::Regex(_)
            | Check::NotRegex(_)
            | Check::Sql(_)
            | Check::Schema(_)
            | Check::NoneDenied => None,
        }
    }

    /// Takes down what a check has found in the world.
    pub(super) fn take_down(&self, what: &Check, found: &Result<(), String>, site: &Site) {
        let Some(deck) = self.deck.as_ref().filter(|deck| deck.plays() == Plays::World) else {
            return;
        };
        match what {
            Check::File { path, .. } => deck.saw_file(see(site, path)),
            Check::Command(argv) => {
                let (argv, complaint) = (argv.clone(), found.clone().err());
                deck.saw_command(SeenCommand { argv, complaint });
            }
            Check::Regex(_)
            | Check::NotRegex(_)
            | Check::Sql(_)
            | Check::Schema(_)
            | Check::NoneDenied => {}
        }
    }

    /// Takes down the files that the run's tools have written: a check of one may come later.
    pub(super) fn take_down_written(&self, site: &Site) {
        let Some(deck) = self.deck.as_ref().filter(|deck| deck.plays() == Plays::World) else {
            return;
        };
        for path in deck.written() {
            deck.saw_file(see(site, Path::new(&path)));
        }
    }
}

fn see(site: &Site, path: &Path) -> SeenFile {
    let path = path.strip_prefix(&site.workdir).unwrap_or(path);
    let file = site.workdir.join(path).metadata().ok().filter(std::fs::Metadata::is_file);
    let written = file.as_ref().and_then(|file| file.modified().ok());
    let written = written.and_then(|at| jiff::Timestamp::try_from(at).ok());
    let fresh = written.is_some_and(|at| at + CLOCK_STEP >= site.started);
    SeenFile::new(path, file.map(|file| file.len()), fresh)
}

fn of_file(deck: &Deck, path: &Path, fresh: bool, min_bytes: u64) -> Result<(), String> {
    let shown = path.display();
    let Some(seen) = deck.file(path) else {
        return Err(format!("the cassette knows nothing of the file `{shown}`"));
    };
    match seen.bytes {
        None => Err(format!("there was no file `{shown}`")),
        Some(found) if found < min_bytes => {
            Err(format!("`{shown}` had {found} bytes, at least {min_bytes} are expected"))
        }
        Some(_) if fresh && !seen.fresh => Err(format!("`{shown}` was of before the run started")),
        Some(_) => Ok(()),
    }
}

fn of_command(deck: &Deck, argv: &[String]) -> Result<(), String> {
    match deck.command(argv) {
        None => Err(format!("the cassette knows nothing of the command `{}`", argv.join(" "))),
        Some(SeenCommand { complaint: None, .. }) => Ok(()),
        Some(SeenCommand { complaint: Some(words), .. }) => Err(words),
    }
}
