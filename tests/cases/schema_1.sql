-- What the first released schema looks like with a history in it. Never edited.
-- The ledger. Instants are text, RFC 3339 in UTC with exactly three decimals: they sort as they
-- compare, so an index on them serves the views too.

CREATE TABLE definitions (
    definition_hash TEXT PRIMARY KEY,
    job             TEXT NOT NULL,
    first_seen_at   TEXT NOT NULL,
    last_seen_at    TEXT NOT NULL,
    effective       TEXT NOT NULL
) STRICT;

CREATE TABLE jobs (
    job             TEXT PRIMARY KEY,
    file            TEXT NOT NULL,
    description     TEXT,
    owner           TEXT,
    labels          TEXT NOT NULL DEFAULT '{}',
    enabled         INTEGER NOT NULL DEFAULT 1,
    paused_reason   TEXT,
    invalid_reason  TEXT,
    removed_at      TEXT,
    schedule        TEXT,
    timezone        TEXT,
    next_due_at     TEXT,
    first_seen_at   TEXT NOT NULL,
    definition_hash TEXT REFERENCES definitions (definition_hash),
    -- Every due instant up to here has its row in `slots`.
    decided_until   TEXT NOT NULL,
    -- The grid of `every`: anchor + k × interval. Restarts and edits of the prompt keep it.
    every_anchor    TEXT
) STRICT;

CREATE TABLE runs (
    run_id             TEXT PRIMARY KEY,
    job                TEXT NOT NULL REFERENCES jobs (job),
    trigger            TEXT NOT NULL
        CHECK (trigger IN ('schedule', 'manual', 'catchup', 'retry', 'after', 'backfill', 'rpc')),
    due_at             TEXT,
    attempt            INTEGER NOT NULL CHECK (attempt >= 1),
    state              TEXT NOT NULL
        CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'timed_out', 'cancelled', 'interrupted')),
    -- How the work ended, committed before any tidying; `state` follows it after the clean-up.
    work_state         TEXT
        CHECK (work_state IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'interrupted')),
    error_kind         TEXT,
    error_message      TEXT,
    limit_name         TEXT,
    limit_ms           INTEGER,
    phase              TEXT,
    retryable          INTEGER,
    model              TEXT,
    queued_at          TEXT NOT NULL,
    started_at         TEXT,
    finished_at        TEXT,
    duration_ms        INTEGER,
    late_ms            INTEGER,
    input_tokens       INTEGER,
    output_tokens      INTEGER,
    usd                REAL,
    tool_calls         INTEGER NOT NULL DEFAULT 0,
    tool_errors        INTEGER NOT NULL DEFAULT 0,
    denied_calls       INTEGER NOT NULL DEFAULT 0,
    reply              TEXT,
    partial_text       TEXT,
    session_id         TEXT NOT NULL,
    cleanup_outcome    TEXT CHECK (cleanup_outcome IN ('clean', 'forced', 'incomplete', 'timed_out')),
    cleanup_ms         INTEGER,
    killed_processes   INTEGER NOT NULL DEFAULT 0,
    leaked             TEXT NOT NULL DEFAULT '[]',
    exit_code          INTEGER,
    host               TEXT NOT NULL,
    version            TEXT NOT NULL,
    definition_hash    TEXT NOT NULL REFERENCES definitions (definition_hash),
    -- Who drives it: recognised by all three, since a pid alone is used again.
    owner_boot_id      TEXT NOT NULL,
    owner_pid          INTEGER NOT NULL,
    owner_started      INTEGER NOT NULL
) STRICT;

-- Once: whatever restarts, clock steps and second daemons do.
CREATE UNIQUE INDEX runs_once ON runs (job, due_at, attempt) WHERE due_at IS NOT NULL;
CREATE INDEX runs_by_job ON runs (job, queued_at DESC);
CREATE INDEX runs_by_time ON runs (queued_at DESC);
CREATE INDEX runs_open ON runs (state) WHERE state IN ('queued', 'running');

CREATE TRIGGER runs_terminal_is_final BEFORE UPDATE OF state ON runs
WHEN old.state NOT IN ('queued', 'running') AND new.state IS NOT old.state
BEGIN
    SELECT RAISE(ABORT, 'a terminal state never changes');
END;

CREATE TABLE slots (
    job        TEXT NOT NULL REFERENCES jobs (job),
    due_at     TEXT NOT NULL,
    due_until  TEXT NOT NULL,
    slots      INTEGER NOT NULL CHECK (slots >= 1),
    decision   TEXT NOT NULL
        CHECK (decision IN ('started', 'buffered', 'skipped', 'missed', 'held')),
    reason     TEXT,
    run_id     TEXT REFERENCES runs (run_id),
    decided_at TEXT NOT NULL,
    late_ms    INTEGER NOT NULL,
    PRIMARY KEY (job, due_at),
    CHECK (due_until >= due_at)
) STRICT;
CREATE INDEX slots_by_time ON slots (due_at DESC);

CREATE TABLE attempts (
    run_id             TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
    n                  INTEGER NOT NULL,
    model              TEXT NOT NULL,
    auth_profile       TEXT,
    state              TEXT NOT NULL,
    error_kind         TEXT,
    started_at         TEXT NOT NULL,
    duration_ms        INTEGER,
    input_tokens       INTEGER,
    output_tokens      INTEGER,
    cache_read_tokens  INTEGER,
    cache_write_tokens INTEGER,
    usd                REAL,
    idle_window_ms     INTEGER,
    idle_rule          TEXT NOT NULL,
    PRIMARY KEY (run_id, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE tool_calls (
    run_id       TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
    n            INTEGER NOT NULL,
    tool         TEXT NOT NULL,
    outcome      TEXT NOT NULL CHECK (outcome IN ('ok', 'error', 'denied', 'timed_out')),
    exit_code    INTEGER,
    started_at   TEXT NOT NULL,
    duration_ms  INTEGER NOT NULL,
    output_bytes INTEGER NOT NULL,
    PRIMARY KEY (run_id, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE cleanups (
    run_id      TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
    n           INTEGER NOT NULL,
    step        TEXT NOT NULL,
    outcome     TEXT NOT NULL CHECK (outcome IN ('clean', 'forced', 'incomplete', 'timed_out')),
    started_at  TEXT NOT NULL,
    duration_ms INTEGER NOT NULL,
    detail      TEXT,
    PRIMARY KEY (run_id, n)
) STRICT, WITHOUT ROWID;

-- The promise to everyone who queries: columns are only ever added.

CREATE VIEW v1_jobs AS
SELECT j.job, j.description, j.owner, j.labels, j.enabled, j.paused_reason, j.invalid_reason,
       j.schedule, j.timezone, j.next_due_at,
       (SELECT state FROM runs r WHERE r.job = j.job ORDER BY r.queued_at DESC LIMIT 1) AS last_state,
       (SELECT count(*) FROM runs r
         WHERE r.job = j.job AND r.state IN ('failed', 'timed_out')
           AND r.queued_at > coalesce((SELECT max(s.queued_at) FROM runs s
                                        WHERE s.job = j.job AND s.state = 'succeeded'), '')
       ) AS consecutive_failures,
       j.first_seen_at, j.definition_hash, j.removed_at, j.file
FROM jobs j;

CREATE VIEW v1_definitions AS
SELECT definition_hash, job, first_seen_at, last_seen_at, effective FROM definitions;

CREATE VIEW v1_slots AS
SELECT job, due_at, due_until, slots, decision, reason, run_id, decided_at, late_ms FROM slots;

CREATE VIEW v1_runs AS
SELECT run_id, job, trigger, due_at, attempt, state, error_kind, error_message, limit_name,
       limit_ms, phase, model, queued_at, started_at, finished_at, duration_ms, late_ms,
       input_tokens, output_tokens, usd, tool_calls, tool_errors, denied_calls, reply,
       partial_text, session_id, cleanup_outcome, exit_code, host, version, definition_hash
FROM runs;

CREATE VIEW v1_attempts AS
SELECT run_id, n, model, auth_profile, state, error_kind, started_at, duration_ms, input_tokens,
       output_tokens, cache_read_tokens, cache_write_tokens, usd, idle_window_ms, idle_rule
FROM attempts;

CREATE VIEW v1_tool_calls AS
SELECT run_id, n, tool, outcome, exit_code, started_at, duration_ms, output_bytes FROM tool_calls;

CREATE VIEW v1_cleanups AS
SELECT run_id, step, outcome, started_at, duration_ms, detail, n FROM cleanups;

INSERT INTO definitions VALUES ('old', 'daily', '2026-11-29T07:00:00.000Z', '2026-11-30T07:00:00.000Z', '{}');
INSERT INTO jobs (job, file, first_seen_at, definition_hash, decided_until, every_anchor)
VALUES ('daily', 'jobs/daily.toml', '2026-11-29T07:00:00.000Z', 'old', '2026-11-30T07:00:00.000Z', '2026-11-29T07:00:00.000Z');
INSERT INTO runs (run_id, job, trigger, due_at, attempt, state, work_state, error_kind, error_message, queued_at, started_at, finished_at, session_id, host, version, definition_hash, owner_boot_id, owner_pid, owner_started)
VALUES ('old1', 'daily', 'schedule', '2026-11-30T07:00:00.000Z', 1, 'failed', 'failed', 'network', 'connection refused', '2026-11-30T07:00:00.001Z', '2026-11-30T07:00:00.002Z', '2026-11-30T07:00:00.003Z', 's', 'h', '0.1.0', 'old', 'b', 1, 1);
INSERT INTO slots VALUES ('daily', '2026-11-30T07:00:00.000Z', '2026-11-30T07:00:00.000Z', 1, 'started', NULL, 'old1', '2026-11-30T07:00:00.001Z', 1);
PRAGMA application_id = 1347767875;
PRAGMA user_version = 1;
