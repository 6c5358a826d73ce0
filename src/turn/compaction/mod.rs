//! A conversation that becomes too long for its model is shortened: its older part is replaced by a
//! summary that the model itself makes of it (semantics §7).

mod plan;

pub use plan::{CompactionPlan, Conversation, PromptPlace, plan_compaction};
