-- What did not arrive is asked for more often than it happens; so is what did not go well of a job.
CREATE INDEX deliveries_not_arrived ON deliveries (run_id) WHERE state IN ('failed', 'unknown');
CREATE INDEX runs_not_well_of_job ON runs (job, state, queued_at DESC)
    WHERE state IN ('failed', 'timed_out', 'cancelled', 'interrupted');
