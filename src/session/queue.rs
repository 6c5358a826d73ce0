//! What becomes of a message whose session is busy. Only decides.

use crate::config::{QueueMode, QueueRules};

/// What there is of a session when a message arrives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Busy {
    /// A turn goes on that can still be told something.
    pub listens: bool,
    /// Something goes on, whether or not it can be told anything, or waits.
    pub works: bool,
    /// A turn waits that collects messages.
    pub collects: bool,
    /// So many turns of messages wait, that one not counted.
    pub waiting: usize,
}

/// What becomes of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Its turn begins now.
    Starts,
    /// It is told to the turn that goes on.
    Steers,
    /// It waits for a turn of its own; the oldest of those that wait is dropped for it, or not.
    Waits(Overflow),
    /// It waits, and more may come with it.
    Collects,
    /// It goes with those that wait together.
    Joins,
    /// What goes on or waits is given up for it.
    Replaces,
}

/// Whether too many would wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// There is room.
    None,
    /// The oldest has to go.
    DropsOldest,
}

/// Decides.
pub fn fate(rules: QueueRules, busy: Busy) -> Fate {
    if !busy.works {
        return Fate::Starts;
    }
    let overflow = if busy.waiting >= rules.cap { Overflow::DropsOldest } else { Overflow::None };
    match rules.mode {
        QueueMode::Steer if busy.listens => Fate::Steers,
        // What has just ended, or has not begun, can be told nothing.
        QueueMode::Steer | QueueMode::Followup => Fate::Waits(overflow),
        QueueMode::Collect if busy.collects => Fate::Joins,
        QueueMode::Collect => Fate::Collects,
        QueueMode::Interrupt => Fate::Replaces,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Semantics §6: queue modes for a message that arrives while its session is busy; queue cap 20.
    #[test]
    fn the_table() {
        use Fate::{Collects, Joins, Replaces, Starts, Steers, Waits};
        use QueueMode::{Collect, Followup, Interrupt, Steer};
        let idle = Busy::default();
        let runs = Busy { listens: true, works: true, ..idle };
        let deaf = Busy { works: true, ..idle };
        let collecting = Busy { collects: true, ..runs };
        let with = |waiting| Busy { waiting, ..deaf };
        let (room, none_left) = (Waits(Overflow::None), Waits(Overflow::DropsOldest));
        let table = [
            (Steer, [Starts, Steers, room, Steers, room, none_left]),
            (Followup, [Starts, room, room, room, room, none_left]),
            (Collect, [Starts, Collects, Collects, Joins, Collects, Collects]),
            (Interrupt, [Starts, Replaces, Replaces, Replaces, Replaces, Replaces]),
        ];
        for (mode, expected) in table {
            let rules = QueueRules { mode, ..QueueRules::default() };
            let seen = [idle, runs, deaf, collecting, with(19), with(20)];
            assert_eq!(seen.map(|busy| fate(rules, busy)), expected, "{mode}");
        }
    }
}
