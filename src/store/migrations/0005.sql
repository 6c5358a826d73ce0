-- Retention, and pages of a long history.

-- Runs whose rows are gone while what they had left on the disk may still be there: written with
-- the deletion, removed after the files, so that a crash in between leaves no orphan for ever.
CREATE TABLE pruned (
    run_id     TEXT PRIMARY KEY,
    session_id TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The slot of a run. Ids sort by time, so that this one only grows at its end.
CREATE INDEX slots_by_run ON slots (run_id) WHERE run_id IS NOT NULL;

-- Counted ranges may reach into a period that begins after them; there are few.
CREATE INDEX slots_ranges ON slots (due_until) WHERE slots > 1;

-- What did not go well is looked for more often than it happens.
CREATE INDEX runs_not_well ON runs (state, queued_at DESC)
    WHERE state IN ('failed', 'timed_out', 'cancelled', 'interrupted');
