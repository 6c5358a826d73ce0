//! One turn: prompt, model stream, tool calls, until the answer.
//!
//! Knows no job and no store. A [`Turn`] keeps its conversation outside the future that drives it,
//! so the future can be dropped at any await: what was said stays, and another model may go on.

mod announce;
mod budget;
mod compaction;
mod cut;
mod drive;
mod hooked;
mod observe;
mod prompt;
mod shape;
mod shown;
mod talk;
mod tokens;
mod window;

pub(crate) use announce::only_announces;
pub use budget::{AttemptBill, Bounds, OverLimit, Purse};
pub use compaction::{CompactionPlan, Conversation, PromptPlace, plan_compaction};
pub(crate) use cut::cut;
pub use drive::{Model, Opening, Tally, Turn, TurnEnd};
pub use observe::{CompactionCause, Observer, PartEnd, TurnEvent};
pub use prompt::{
    Assembled, BOOTSTRAP_FILES, BootstrapFile, Known, Material, Overrides, Part, PartKind,
    PartReport, PromptError, Tools, Variables, assemble, base, base_of_message, read_bootstrap,
    render,
};
pub use shape::{Left, shape};
pub use tokens::{tokens_in, tokens_of, tokens_of_frame};
pub use window::Window;
