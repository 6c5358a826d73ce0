//! A length of time as models write it.

use std::time::Duration;

use serde::Deserialize;

use super::tool::Refusal;

/// Models write either, whatever the schema says.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Limit {
    Seconds(f64),
    Text(String),
}

impl Limit {
    /// It as a length of time.
    pub(super) fn duration(&self) -> Result<Duration, Refusal> {
        let (parsed, given) = match self {
            Self::Seconds(seconds) => {
                (Duration::try_from_secs_f64(*seconds).ok(), seconds.to_string())
            }
            Self::Text(text) => (humantime::parse_duration(text).ok(), text.clone()),
        };
        parsed.filter(|limit| !limit.is_zero()).ok_or_else(|| {
            Refusal::Failed(format!("the timeout `{given}` is no length of time such as `30s`"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_has_a_unit_or_is_seconds() {
        let parsed = |text: &str| {
            let limit: Limit = serde_json::from_str(text).unwrap();
            limit.duration().ok()
        };
        assert_eq!(parsed("\"30s\""), Some(Duration::from_secs(30)));
        assert_eq!(parsed("1.5"), Some(Duration::from_millis(1500)));
        assert_eq!(parsed("2"), Some(Duration::from_secs(2)));
        for wrong in ["0", "-1", "1e300", "\"\"", "\"0s\"", "\"fast\"", "\"5\"", "\"-1s\""] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
