-- What runs have cost by day, kept up with their ends and for longer than their rows.
CREATE TABLE costs (
    -- The day on which a run ended: in the zone of its job, and in that of all jobs.
    day           TEXT NOT NULL,
    day_of_all    TEXT NOT NULL,
    job           TEXT NOT NULL,
    -- Empty: no model was asked.
    model         TEXT NOT NULL,
    -- A run counts once, with the model that it ended with; tokens and money with those that were
    -- asked for them.
    runs          INTEGER NOT NULL,
    failed        INTEGER NOT NULL,
    input_tokens  INTEGER,
    output_tokens INTEGER,
    usd           REAL,
    -- Runs of which it is not known, or not wholly, what this model cost.
    unpriced_runs INTEGER NOT NULL,
    PRIMARY KEY (day, day_of_all, job, model)
) STRICT, WITHOUT ROWID;
CREATE INDEX costs_by_day_of_all ON costs (day_of_all);
CREATE INDEX costs_by_job ON costs (job, day);

CREATE VIEW v1_costs AS
SELECT day, job, nullif(model, '') AS model, sum(runs) AS runs, sum(failed) AS failed,
       sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens, sum(usd) AS usd,
       sum(unpriced_runs) AS unpriced_runs
FROM costs GROUP BY day, job, model;

-- Which zone a day was meant in is not known any more: these are days of UTC.
INSERT INTO costs (day, day_of_all, job, model, runs, failed, input_tokens, output_tokens, usd,
                   unpriced_runs)
SELECT substr(r.finished_at, 1, 10), substr(r.finished_at, 1, 10), r.job, coalesce(a.model, ''),
       count(DISTINCT iif(a.model IS r.model, r.run_id, NULL)),
       count(DISTINCT iif(a.model IS r.model AND r.state IN ('failed', 'timed_out', 'interrupted'),
                          r.run_id, NULL)),
       sum(a.input_tokens), sum(a.output_tokens), sum(a.usd),
       count(DISTINCT iif(a.run_id IS NOT NULL AND a.usd IS NULL, r.run_id, NULL))
FROM runs r LEFT JOIN attempts a USING (run_id)
WHERE r.started_at IS NOT NULL AND r.finished_at IS NOT NULL
GROUP BY 1, 2, 3, 4;

-- Slots that are held until the next day, a cap of theirs being used up.
CREATE INDEX slots_held_for_budget ON slots (job) WHERE decision = 'held' AND reason = 'budget';
