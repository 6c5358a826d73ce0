//! Ids that sort by the time they were made.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// A new id, unique, that sorts after every id made at an earlier `wall` time.
            pub fn new(wall: Timestamp) -> Self {
                Self(new_ulid(wall))
            }

            /// An id as it was stored.
            pub fn from_stored(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The id's text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// One run: one execution for a slot or a trigger.
    RunId
);
id!(
    /// One session: the conversation that a run's turn belongs to, and its transcript's name.
    SessionId
);

id!(
    /// One message of a person to a session.
    MessageId
);

id!(
    /// One incident.
    IncidentId
);

fn new_ulid(wall: Timestamp) -> String {
    let since_epoch = u64::try_from(wall.as_millisecond()).unwrap_or(0);
    let random = ulid::Ulid::generate().random();
    ulid::Ulid::from_parts(since_epoch, random).to_string().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_and_differ_within_a_millisecond() {
        let early: Timestamp = "2026-11-30T09:00:00Z".parse().unwrap();
        let late: Timestamp = "2026-11-30T09:00:00.001Z".parse().unwrap();
        assert!(RunId::new(early) < RunId::new(late));
        assert_ne!(RunId::new(early), RunId::new(early));
    }
}
