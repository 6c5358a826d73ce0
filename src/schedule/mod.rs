//! Expression and zone → next and previous due instant.

/// A compiled schedule. (Being written.)
#[derive(Debug, Clone)]
pub struct Schedule;
