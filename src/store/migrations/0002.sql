-- Retries across runs, pauses, buffered slots, and decisions that a clock set back makes again.

-- What of a definition says when it is due: another text begins a new decision.
ALTER TABLE jobs ADD COLUMN timing           TEXT;
ALTER TABLE jobs ADD COLUMN paused_cause     TEXT;
ALTER TABLE jobs ADD COLUMN paused_at        TEXT;
ALTER TABLE jobs ADD COLUMN paused_until     TEXT;
ALTER TABLE jobs ADD COLUMN failed_slots     INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN counted_failures INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN backoff_until    TEXT;

-- Whether what follows the run's end has been decided; what is older has no consequences left.
ALTER TABLE runs ADD COLUMN settled  INTEGER NOT NULL DEFAULT 1;
-- The nominal time with its jitter: lateness counts from here.
ALTER TABLE runs ADD COLUMN start_at TEXT;
-- The due instants that it stands for.
ALTER TABLE runs ADD COLUMN slots    INTEGER;
-- The first of them.
ALTER TABLE runs ADD COLUMN first_due_at TEXT;
CREATE INDEX runs_unsettled ON runs (job) WHERE settled = 0;

CREATE INDEX slots_buffered ON slots (job) WHERE decision = 'buffered';

CREATE TRIGGER slots_decision_is_final BEFORE UPDATE OF decision ON slots
WHEN new.decision IS NOT old.decision AND NOT (
       (old.decision = 'held' AND new.decision IN ('started', 'missed'))
    OR (old.decision = 'buffered' AND new.decision IN ('started', 'skipped'))
    OR (old.decision = 'started' AND new.decision = 'skipped'))
BEGIN
    SELECT RAISE(ABORT, 'a decision is final');
END;

-- Who did what when; never what was said.
CREATE TABLE audit (
    id      INTEGER PRIMARY KEY,
    at      TEXT NOT NULL,
    actor   TEXT NOT NULL,
    kind    TEXT NOT NULL,
    run_id  TEXT,
    session TEXT,
    name    TEXT,
    result  TEXT
) STRICT;

CREATE VIEW v1_audit AS
SELECT at, actor, kind, run_id, session, name, result FROM audit;

DROP VIEW v1_jobs;
CREATE VIEW v1_jobs AS
SELECT j.job, j.description, j.owner, j.labels, j.enabled, j.paused_reason, j.invalid_reason,
       j.schedule, j.timezone, j.next_due_at,
       (SELECT state FROM runs r WHERE r.job = j.job ORDER BY r.queued_at DESC LIMIT 1) AS last_state,
       -- Slots that have failed for good; of a job that is only run by hand, runs.
       CASE WHEN j.schedule IS NOT NULL THEN j.failed_slots ELSE
           (SELECT count(*) FROM runs r
             WHERE r.job = j.job AND r.state IN ('failed', 'timed_out')
               AND r.queued_at > coalesce((SELECT max(s.queued_at) FROM runs s
                                            WHERE s.job = j.job AND s.state = 'succeeded'), ''))
       END AS consecutive_failures,
       j.first_seen_at, j.definition_hash, j.removed_at, j.file,
       j.paused_cause, j.paused_at, j.paused_until, j.backoff_until,
       CASE WHEN j.removed_at IS NOT NULL THEN 'removed'
            WHEN j.paused_cause IS NOT NULL THEN 'paused'
            WHEN j.enabled = 0 THEN 'disabled'
            WHEN j.schedule LIKE 'at %' AND j.next_due_at IS NULL
                 AND EXISTS (SELECT 1 FROM slots s WHERE s.job = j.job) THEN 'done'
            WHEN j.invalid_reason IS NOT NULL THEN 'invalid'
            ELSE 'active' END AS state
FROM jobs j;

DROP VIEW v1_runs;
CREATE VIEW v1_runs AS
SELECT run_id, job, trigger, due_at, attempt, state, error_kind, error_message, limit_name,
       limit_ms, phase, model, queued_at, started_at, finished_at, duration_ms, late_ms,
       input_tokens, output_tokens, usd, tool_calls, tool_errors, denied_calls, reply,
       partial_text, session_id, cleanup_outcome, exit_code, host, version, definition_hash,
       slots
FROM runs;

-- Whatever moves a run or a tool call writes its audit row with it, also after a crash.
CREATE TRIGGER audit_run_start AFTER UPDATE OF state ON runs
WHEN old.state = 'queued' AND new.state = 'running'
BEGIN
    INSERT INTO audit (at, actor, kind, run_id, session, name, result)
    VALUES (new.started_at,
            CASE WHEN new.trigger IN ('manual', 'rpc', 'backfill') THEN 'person' ELSE 'punctual' END,
            'run_start', new.run_id, new.session_id, new.job, new.state);
END;

CREATE TRIGGER audit_run_end AFTER UPDATE OF state ON runs
WHEN old.state IN ('queued', 'running') AND new.state NOT IN ('queued', 'running')
BEGIN
    INSERT INTO audit (at, actor, kind, run_id, session, name, result)
    VALUES (new.finished_at, 'punctual', 'run_end', new.run_id, new.session_id, new.job,
            new.state || coalesce(':' || new.error_kind, ''));
END;

CREATE TRIGGER audit_tool_end AFTER INSERT ON tool_calls
BEGIN
    INSERT INTO audit (at, actor, kind, run_id, session, name, result)
    SELECT strftime('%Y-%m-%dT%H:%M:%fZ', new.started_at,
                    '+' || (coalesce(new.duration_ms, 0) / 1000.0) || ' seconds'),
           'model', 'tool_end', run_id, session_id, new.tool, new.outcome
    FROM runs WHERE run_id = new.run_id;
END;
