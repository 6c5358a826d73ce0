//! The folder of job files → jobs, and for each broken file what is wrong with it.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use super::load::read_text;
use super::{Config, others};
use crate::job::{self, JobId, JobSpec, Parsed, Problem, Surroundings, with_sources};

/// What the folder holds. One broken file never takes another one with it.
#[derive(Debug, Default)]
pub struct JobSet {
    /// The jobs that can run.
    pub jobs: BTreeMap<JobId, JobSpec>,
    /// The others by the stem of their file, each with at least one error.
    pub invalid: BTreeMap<String, Vec<Problem>>,
    /// What the writers of valid jobs should know.
    pub warnings: Vec<Problem>,
    /// Why the folder could not be read. Then nothing is known about any job: it does not mean
    /// that there are none.
    pub folder: Option<Problem>,
}

impl JobSet {
    /// Every problem, errors and warnings, in the order of the files.
    pub fn problems(&self) -> Vec<Problem> {
        let invalid = self.invalid.values().flatten();
        let mut all: Vec<_> =
            self.folder.iter().chain(invalid).chain(&self.warnings).cloned().collect();
        job::sort_problems(&mut all);
        // What is wrong in [defaults] is one problem, whichever jobs repeat it.
        all.dedup();
        all
    }

    /// A broken file may have been the matrix of jobs that are `known`: what is wrong with it is
    /// wrong with each of them.
    pub fn spread<'a>(&mut self, known: impl IntoIterator<Item = &'a str>) {
        let mut matrices = BTreeSet::new();
        for name in known {
            let Some((stem, _)) = name.split_once('.') else { continue };
            let Some(problems) = self.invalid.get(stem).cloned() else { continue };
            self.invalid.insert(name.to_owned(), problems);
            matrices.insert(stem);
        }
        self.invalid.retain(|name, _| !matrices.contains(name.as_str()));
    }

    /// Whether everything can be used.
    pub fn is_valid(&self) -> bool {
        self.folder.is_none() && self.invalid.is_empty()
    }
}

/// Reads every `*.toml` of the jobs folder; names that begin with a dot are not job files.
pub fn load_jobs(config: &Config) -> JobSet {
    let mut set = JobSet::default();
    let files = match job_files(&config.jobs_dir) {
        Ok(files) => files,
        Err(error) => {
            let message = format!("cannot read the jobs folder: {}", with_sources(&error));
            set.folder = Some(Problem::of_file(&config.jobs_dir, message));
            return set;
        }
    };
    let read = config.with_surroundings(|around| in_parallel(&files, |file| one(file, around)));
    let mut mentions = Vec::new();
    for (stem, parsed) in read {
        match parsed {
            Ok(parsed) => {
                for Parsed { job, warnings, mentions: named } in parsed {
                    set.warnings.extend(warnings);
                    mentions.extend(named.into_iter().map(|it| (job.id.clone(), it)));
                    set.jobs.insert(job.id.clone(), job);
                }
            }
            Err(problems) => {
                set.invalid.insert(stem, problems);
            }
        }
    }
    others::check(&mut set, mentions);
    // A warning about [defaults] is one warning, whichever jobs repeat it.
    job::sort_problems(&mut set.warnings);
    set.warnings.dedup();
    set
}

fn job_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let text = name.to_string_lossy();
        if text.ends_with(".toml") && !text.starts_with('.') {
            files.push(folder.join(&name));
        }
    }
    files.sort();
    Ok(files)
}

type Read = (String, Result<Vec<Parsed>, Vec<Problem>>);

fn one(file: &Path, around: &Surroundings<'_>) -> Read {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let parsed = match (JobId::of_file(&stem), read_text(file)) {
        (Ok(id), Ok(text)) => job::parse(&id, file, &text, around),
        (Err(message), _) => Err(vec![Problem::of_file(file, message)]),
        (_, Err(problem)) => Err(vec![*problem]),
    };
    (stem, parsed)
}

/// Fewer files than this are not worth a thread.
const FILES_PER_THREAD_MIN: usize = 250;

/// Reads all files, on as many threads as the machine has cores, and keeps their order.
fn in_parallel(files: &[PathBuf], read: impl Fn(&Path) -> Read + Sync) -> Vec<Read> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let share = files.len().div_ceil(cores).max(FILES_PER_THREAD_MIN);
    let of_share = &|share: &[PathBuf]| share.iter().map(|file| read(file)).collect::<Vec<_>>();
    if files.len() <= share {
        return of_share(files);
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            files.chunks(share).map(|share| scope.spawn(move || of_share(share))).collect();
        let read = threads.into_iter();
        read.flat_map(|thread| thread.join().expect("reading a file does not panic")).collect()
    })
}
