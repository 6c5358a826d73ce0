-- What is sent once a run is over, and how that went.

-- What its runs send, as JSON; nothing where it is NULL.
ALTER TABLE definitions ADD COLUMN sends TEXT;
-- `settled` is 1 where nothing follows the run, 2 where another attempt does.
-- Whoever asked for the run wants nothing sent.
ALTER TABLE runs ADD COLUMN unsent INTEGER NOT NULL DEFAULT 0;

CREATE TABLE deliveries (
    id          INTEGER PRIMARY KEY,
    -- The same for every try: receivers can tell a repetition by it.
    delivery_id TEXT NOT NULL UNIQUE,
    run_id      TEXT REFERENCES runs (run_id) ON DELETE CASCADE,
    job         TEXT,
    target      TEXT NOT NULL,
    best_effort INTEGER NOT NULL DEFAULT 0,
    subject     TEXT,
    attach      INTEGER NOT NULL DEFAULT 0,
    state       TEXT NOT NULL
        CHECK (state IN ('queued', 'sent', 'suppressed', 'failed', 'unknown')),
    attempts    INTEGER NOT NULL DEFAULT 0,
    -- Of a message that goes in several parts: those that have arrived.
    parts_sent  INTEGER NOT NULL DEFAULT 0,
    queued_at   TEXT NOT NULL,
    -- Not before this.
    next_at     TEXT NOT NULL,
    -- Somebody is sending it, since then. If that process is dead, it may have arrived.
    sending_at  TEXT,
    -- How often it was sent again because nobody knew whether it had arrived.
    repeats     INTEGER NOT NULL DEFAULT 0,
    last_error  TEXT,
    settled_at  TEXT
) STRICT;
CREATE INDEX deliveries_of_run ON deliveries (run_id);
CREATE INDEX deliveries_of_job ON deliveries (job, target, id DESC);
CREATE INDEX deliveries_due ON deliveries (target, next_at)
    WHERE state = 'queued' AND sending_at IS NULL;
CREATE INDEX deliveries_sending ON deliveries (id) WHERE sending_at IS NOT NULL;

CREATE TRIGGER deliveries_settled_is_final BEFORE UPDATE OF state ON deliveries
WHEN old.state <> 'queued' AND new.state IS NOT old.state
BEGIN
    SELECT RAISE(ABORT, 'a settled delivery never changes');
END;

-- Whatever prunes the history leaves what is still to be sent.
CREATE TRIGGER runs_to_be_sent_stay BEFORE DELETE ON runs
WHEN EXISTS (SELECT 1 FROM deliveries d WHERE d.run_id = old.run_id AND d.state = 'queued')
BEGIN
    SELECT RAISE(ABORT, 'a run is kept until what it sends has been sent');
END;

CREATE VIEW v1_deliveries AS
SELECT run_id, target, state, attempts, delivery_id, last_error, settled_at, queued_at, best_effort
FROM deliveries;
