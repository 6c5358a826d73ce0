-- Files that are kept of a run, in `artifacts/<run_id>/` of the state folder.
CREATE TABLE artifacts (
    run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
    path   TEXT NOT NULL,
    bytes  INTEGER NOT NULL,
    PRIMARY KEY (run_id, path)
) STRICT, WITHOUT ROWID;

CREATE VIEW v1_artifacts AS
SELECT run_id, path, bytes, 'artifacts/' || run_id || '/' || path AS file FROM artifacts;
