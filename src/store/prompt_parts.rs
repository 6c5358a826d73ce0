//! What runs' models were told, part by part.

use rusqlite::{Row, params};
use serde::{Deserialize, Serialize};

use super::Store;
use super::error::StoreError;
use super::read::Reader;
use crate::run::RunId;
use crate::turn::PartReport;

/// One part of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptPartRecord {
    /// What it is: `base`, `skill`, `bootstrap`, `prompt`, …
    pub part: String,
    /// Which file, which skill, which tools.
    pub name: Option<String>,
    /// How long it was.
    pub characters: i64,
    /// About how many tokens that was.
    pub tokens: i64,
    /// Characters that were not in it because there were too many.
    pub characters_cut: i64,
    /// Why it was cut or left out.
    pub note: Option<String>,
}

impl From<&PartReport> for PromptPartRecord {
    fn from(part: &PartReport) -> Self {
        Self {
            part: part.kind.as_str().to_owned(),
            name: part.name.clone(),
            characters: count(part.characters),
            tokens: i64::try_from(part.tokens).unwrap_or(i64::MAX),
            characters_cut: count(part.cut),
            note: part.note.clone(),
        }
    }
}

impl Store {
    /// Records the parts of a run's prompt; nothing waits for the disk.
    pub async fn note_prompt(
        &self,
        run_id: &RunId,
        parts: Vec<PartReport>,
    ) -> Result<(), StoreError> {
        let run_id = run_id.clone();
        self.writer
            .enqueue("prompt", move |db| {
                let mut insert = db.prepare_cached(
                    "INSERT OR REPLACE INTO prompt_parts
                         (run_id, n, part, name, characters, tokens, characters_cut, note)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                )?;
                for (n, part) in (1_i64..).zip(parts.iter().map(PromptPartRecord::from)) {
                    insert.execute(params![
                        run_id.as_str(),
                        n,
                        part.part,
                        part.name,
                        part.characters,
                        part.tokens,
                        part.characters_cut,
                        part.note,
                    ])?;
                }
                Ok(())
            })
            .await
    }
}

fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

impl Reader {
    /// The parts of a run's prompt, in their order.
    pub fn prompt_parts(&self, run_id: &str) -> Result<Vec<PromptPartRecord>, StoreError> {
        let mut parts = self.0.prepare_cached(
            "SELECT part, name, characters, tokens, characters_cut, note
             FROM prompt_parts WHERE run_id = ?1 ORDER BY n",
        )?;
        let part = |row: &Row<'_>| {
            Ok(PromptPartRecord {
                part: row.get(0)?,
                name: row.get(1)?,
                characters: row.get(2)?,
                tokens: row.get(3)?,
                characters_cut: row.get(4)?,
                note: row.get(5)?,
            })
        };
        Ok(parts.query_map([run_id], part)?.collect::<Result<_, _>>()?)
    }
}
