-- Incidents: what is wrong with a job, or with a provider, from when to when, and who was told.

CREATE TABLE incidents (
    incident  TEXT PRIMARY KEY,
    cause     TEXT NOT NULL,
    -- One of the two: whose it is.
    job       TEXT,
    provider  TEXT,
    target    TEXT NOT NULL,
    opened_at TEXT NOT NULL,
    -- Nobody is told before this.
    notify_at TEXT NOT NULL,
    told_at   TEXT,
    acked_at  TEXT,
    over_at   TEXT,
    run_id    TEXT,
    detail    TEXT NOT NULL
) STRICT;
-- One open incident of a kind.
CREATE UNIQUE INDEX incidents_open
    ON incidents (cause, coalesce(job, ''), coalesce(provider, ''), target) WHERE over_at IS NULL;
CREATE INDEX incidents_by_time ON incidents (opened_at DESC);

-- The jobs of an incident.
CREATE TABLE incident_jobs (
    incident TEXT NOT NULL REFERENCES incidents (incident) ON DELETE CASCADE,
    job      TEXT NOT NULL,
    since    TEXT NOT NULL,
    until    TEXT,
    PRIMARY KEY (incident, job)
) STRICT, WITHOUT ROWID;
CREATE INDEX incident_jobs_open ON incident_jobs (job) WHERE until IS NULL;

-- A message about an incident is sent like a run's result.
ALTER TABLE deliveries ADD COLUMN incident TEXT;
ALTER TABLE deliveries ADD COLUMN event    TEXT CHECK (event IN ('opened', 'over'));

DROP VIEW v1_deliveries;
CREATE VIEW v1_deliveries AS
SELECT run_id, target, state, attempts, delivery_id, last_error, settled_at, queued_at, best_effort,
       incident, event
FROM deliveries;

CREATE VIEW v1_incidents AS
SELECT incident, cause, job, provider,
       (SELECT json_group_array(j.job) FROM incident_jobs j WHERE j.incident = i.incident) AS jobs,
       CASE WHEN over_at IS NOT NULL THEN 'over'
            WHEN acked_at IS NOT NULL THEN 'acked'
            ELSE 'open' END AS state,
       target, opened_at, told_at, acked_at, over_at, run_id, detail
FROM incidents i;

CREATE INDEX runs_succeeded ON runs (job, queued_at DESC) WHERE state = 'succeeded';

-- Jobs of which something has happened that may begin or end an incident. Written with what has
-- happened, taken away by whoever has looked: no crash loses one.
CREATE TABLE stirred (job TEXT PRIMARY KEY) STRICT;

CREATE TRIGGER stirred_by_end AFTER UPDATE OF settled ON runs
WHEN new.settled = 1 AND old.settled = 0
BEGIN
    INSERT INTO stirred SELECT new.job WHERE NOT EXISTS (SELECT 1 FROM stirred WHERE job = new.job);
END;

CREATE TRIGGER stirred_by_slot AFTER INSERT ON slots
WHEN new.decision IN ('missed', 'held') OR new.reason = 'budget'
    OR (new.decision = 'started'
        AND EXISTS (SELECT 1 FROM incident_jobs WHERE job = new.job AND until IS NULL))
BEGIN
    INSERT INTO stirred SELECT new.job WHERE NOT EXISTS (SELECT 1 FROM stirred WHERE job = new.job);
END;

CREATE TRIGGER stirred_by_turn AFTER UPDATE OF decision ON slots
BEGIN
    INSERT INTO stirred SELECT new.job WHERE NOT EXISTS (SELECT 1 FROM stirred WHERE job = new.job);
END;

CREATE TRIGGER stirred_by_delivery AFTER UPDATE OF state ON deliveries
WHEN new.run_id IS NOT NULL AND new.state IS NOT old.state
    AND (new.state IN ('failed', 'unknown')
         OR EXISTS (SELECT 1 FROM incident_jobs WHERE job = new.job AND until IS NULL))
BEGIN
    INSERT INTO stirred SELECT new.job WHERE NOT EXISTS (SELECT 1 FROM stirred WHERE job = new.job);
END;

CREATE TRIGGER stirred_by_pause AFTER UPDATE OF paused_cause ON jobs
WHEN new.paused_cause IS NOT old.paused_cause
BEGIN
    INSERT INTO stirred SELECT new.job WHERE NOT EXISTS (SELECT 1 FROM stirred WHERE job = new.job);
END;
