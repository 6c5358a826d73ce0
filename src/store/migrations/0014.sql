-- What a run sends while it goes on, and calls inside of calls.

-- The text of a message of the run itself; NULL where the delivery tells how the run has ended.
ALTER TABLE deliveries ADD COLUMN text TEXT;

DROP VIEW v1_deliveries;
CREATE VIEW v1_deliveries AS
SELECT run_id, target, state, attempts, delivery_id, last_error, settled_at, queued_at, best_effort,
       incident, event, text
FROM deliveries;

-- The call of `subturn` that a call was made in.
ALTER TABLE tool_calls ADD COLUMN inside INTEGER;

DROP VIEW v1_tool_calls;
CREATE VIEW v1_tool_calls AS
SELECT run_id, n, tool, outcome, exit_code, started_at, duration_ms, output_bytes, inside
FROM tool_calls;
