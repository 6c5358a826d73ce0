//! What jobs say of each other: each one that is named has to be there, and none comes after itself.

use std::collections::{BTreeMap, BTreeSet};

use super::jobs::JobSet;
use crate::job::{self, JobId, JobSpec, Mention, Problem};

/// Looks at what the jobs of `set` say of each other; a job that cannot be as it says becomes an
/// invalid one.
pub(super) fn check(set: &mut JobSet, mentions: Vec<(JobId, Mention)>) {
    let mut broken: BTreeMap<String, Vec<Problem>> = BTreeMap::new();
    let mut places: BTreeMap<(JobId, String), Problem> = BTreeMap::new();
    for (id, Mention { job, problem }) in mentions {
        if is_there(set, &job) {
            places.insert((id, job), problem);
            continue;
        }
        let problem = problem.with_help(help(set, &job));
        let of_file = broken.entry(id.stem().to_owned()).or_default();
        // The jobs of a matrix say the same.
        if !of_file.contains(&problem) {
            of_file.push(problem);
        }
    }
    for circle in circles(&set.jobs) {
        let shown: Vec<_> = circle.iter().chain(circle.first()).map(JobId::as_str).collect();
        let words = format!("the jobs wait for each other: {}", shown.join(" → "));
        for (id, next) in circle.iter().zip(circle.iter().cycle().skip(1)) {
            let Some(place) = places.get(&(id.clone(), next.to_string())) else { continue };
            let problem = Problem { message: words.clone(), ..place.clone() };
            broken.entry(id.stem().to_owned()).or_default().push(problem);
        }
    }
    for (stem, problems) in broken {
        set.jobs.retain(|id, _| id.stem() != stem);
        set.invalid.insert(stem, problems);
    }
}

/// Whether there is such a job, usable or not.
fn is_there(set: &JobSet, name: &str) -> bool {
    name.parse::<JobId>()
        .is_ok_and(|id| set.jobs.contains_key(&id) || set.invalid.contains_key(id.stem()))
}

fn help(set: &JobSet, name: &str) -> Option<String> {
    let names = || set.jobs.keys().map(JobId::as_str);
    let dashed = names().find(|known| known.starts_with(&format!("{name}-")));
    let combined = names().find(|known| known.starts_with(&format!("{name}.")));
    match (dashed, combined) {
        (Some(known), _) => Some(format!("in a prompt, `{known}` is written jobs[\"{known}\"]")),
        (None, Some(known)) => {
            Some(format!("`{name}` is a matrix: name its jobs, such as `{known}`"))
        }
        (None, None) => {
            let near = job::nearest(name, names());
            near.map(|near| format!("did you mean `{near}`?"))
        }
    }
}

/// Every circle of jobs that come after each other, once, from its first job in alphabetical order.
fn circles(jobs: &BTreeMap<JobId, JobSpec>) -> Vec<Vec<JobId>> {
    let mut circles = Vec::new();
    let mut done = BTreeSet::new();
    for id in jobs.keys() {
        let mut path = Vec::new();
        walk(jobs, id, &mut path, &mut done, &mut circles);
    }
    circles
}

/// As deep as jobs come after each other.
fn walk<'a>(
    jobs: &'a BTreeMap<JobId, JobSpec>,
    id: &'a JobId,
    path: &mut Vec<&'a JobId>,
    done: &mut BTreeSet<&'a JobId>,
    circles: &mut Vec<Vec<JobId>>,
) {
    if let Some(start) = path.iter().position(|it| *it == id) {
        circles.push(path[start..].iter().map(|&it| it.clone()).collect());
        return;
    }
    if done.contains(id) {
        return;
    }
    path.push(id);
    for upstream in jobs.get(id).and_then(|spec| spec.after.as_ref()).iter().flat_map(|it| &it.jobs)
    {
        walk(jobs, upstream, path, done, circles);
    }
    path.pop();
    done.insert(id);
}
