-- Each time that a hook was asked: which one, how it went, what it changed by name; no contents.
CREATE TABLE hooks (
    id          INTEGER PRIMARY KEY,
    run_id      TEXT REFERENCES runs (run_id) ON DELETE CASCADE,
    n           INTEGER NOT NULL,
    hook        TEXT NOT NULL,
    name        TEXT NOT NULL,
    outcome     TEXT NOT NULL
                CHECK (outcome IN ('ok', 'changed', 'claimed', 'blocked', 'failed', 'timed_out')),
    changed     TEXT NOT NULL CHECK (json_valid(changed)),
    error       TEXT,
    started_at  TEXT NOT NULL,
    duration_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX hooks_of_run ON hooks (run_id, n);

CREATE VIEW v1_hooks AS
SELECT run_id, n, hook, name, outcome, changed, error, started_at, duration_ms FROM hooks;
