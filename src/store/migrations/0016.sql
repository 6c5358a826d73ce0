-- Conversations that are kept from run to run, and the messages that were said into them.

-- One row per kept conversation; those of isolated runs are their runs' own.
CREATE TABLE sessions (
    session_id   TEXT PRIMARY KEY,
    session_key  TEXT NOT NULL,
    created_at   TEXT NOT NULL,
    last_used_at TEXT NOT NULL,
    last_run_id  TEXT,
    -- How often it was cleared: what was said before is not sent any more.
    clearings    INTEGER NOT NULL DEFAULT 0,
    -- Another one has taken its key.
    ended_at     TEXT
) STRICT;
CREATE UNIQUE INDEX sessions_current ON sessions (session_key) WHERE ended_at IS NULL;
CREATE INDEX sessions_by_use ON sessions (last_used_at);

-- NULL: a command, which says nothing to anybody.
ALTER TABLE runs ADD COLUMN session_key TEXT;
UPDATE runs SET session_key = 'cron:' || job WHERE model IS NOT NULL;
CREATE INDEX runs_open_of_session ON runs (session_id) WHERE state IN ('queued', 'running');

-- What a person has said into a session, without its words: those are in the transcript.
CREATE TABLE messages (
    message_id  TEXT PRIMARY KEY,
    session_id  TEXT NOT NULL,
    -- The run that has heard it, or with which it waits.
    run_id      TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
    mode        TEXT NOT NULL
        CHECK (mode IN ('start', 'steer', 'followup', 'collect', 'interrupt')),
    state       TEXT NOT NULL
        CHECK (state IN ('waiting', 'heard', 'dropped', 'failed', 'cancelled', 'interrupted')),
    received_at TEXT NOT NULL,
    settled_at  TEXT,
    characters  INTEGER NOT NULL
) STRICT;
CREATE INDEX messages_of_run ON messages (run_id);

-- What a run has not heard when it is over shares its end, unless another run hears it.
CREATE TRIGGER messages_unheard AFTER UPDATE OF state ON runs
WHEN old.state IN ('queued', 'running') AND new.state NOT IN ('queued', 'running')
BEGIN
    UPDATE messages
       SET state = iif(new.state IN ('cancelled', 'interrupted'), new.state, 'failed'),
           settled_at = new.finished_at
     WHERE run_id = new.run_id AND state = 'waiting';
END;

CREATE VIEW v1_messages AS
SELECT m.message_id, (SELECT r.session_key FROM runs r WHERE r.run_id = m.run_id) AS session_key,
       m.session_id, m.run_id, m.mode, m.state, m.received_at, m.settled_at, m.characters
FROM messages m;

CREATE VIEW v1_sessions AS
SELECT s.session_key, s.session_id,
       iif(s.session_key LIKE 'job:%', substr(s.session_key, 5), NULL) AS job,
       CASE WHEN EXISTS (SELECT 1 FROM runs r WHERE r.session_id = s.session_id
                            AND r.state IN ('queued', 'running') AND r.state = 'running')
            THEN 'running'
            WHEN EXISTS (SELECT 1 FROM runs r WHERE r.session_id = s.session_id
                            AND r.state IN ('queued', 'running'))
            THEN 'queued'
            WHEN s.ended_at IS NOT NULL THEN 'ended'
            ELSE 'idle' END AS state,
       (SELECT count(*) FROM runs r WHERE r.session_id = s.session_id
           AND r.state IN ('queued', 'running') AND r.state = 'queued') AS queued,
       s.created_at, s.last_run_id, 'sessions/' || s.session_id || '.jsonl' AS transcript,
       s.last_used_at,
       (SELECT r.run_id FROM runs r WHERE r.session_id = s.session_id
           AND r.state IN ('queued', 'running') AND r.state = 'running') AS running_run_id,
       (SELECT json_group_array(run_id) FROM
           (SELECT r.run_id FROM runs r WHERE r.session_id = s.session_id
               AND r.state IN ('queued', 'running') AND r.state = 'queued'
             ORDER BY r.run_id)) AS queued_run_ids
FROM sessions s
UNION ALL
SELECT r.session_key, r.session_id, r.job,
       iif(r.state IN ('queued', 'running'), r.state, 'ended'), r.state = 'queued', r.queued_at,
       r.run_id, 'sessions/' || r.session_id || '.jsonl',
       coalesce(r.finished_at, r.started_at, r.queued_at), iif(r.state = 'running', r.run_id, NULL),
       iif(r.state = 'queued', json_array(r.run_id), '[]')
FROM runs r WHERE r.session_key LIKE 'cron:%';

-- Turns that belong to no job have `@agent` in its place, which is no job.
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
FROM jobs j WHERE j.job <> '@agent';

DROP VIEW v1_runs;
CREATE VIEW v1_runs AS
SELECT run_id, job, trigger, due_at, attempt, state, error_kind, error_message, limit_name,
       limit_ms, phase, model, queued_at, started_at, finished_at, duration_ms, late_ms,
       input_tokens, output_tokens, usd, tool_calls, tool_errors, denied_calls, reply,
       partial_text, session_id, cleanup_outcome, exit_code, host, version, definition_hash,
       slots, session_key
FROM runs;
