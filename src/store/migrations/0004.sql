-- What the host found when it looked at runs that say they have succeeded.
CREATE TABLE checks (
    run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
    n      INTEGER NOT NULL,
    name   TEXT NOT NULL,
    passed INTEGER NOT NULL CHECK (passed IN (0, 1)),
    detail TEXT,
    PRIMARY KEY (run_id, n)
) STRICT, WITHOUT ROWID;

CREATE VIEW v1_checks AS
SELECT run_id, n, name, passed, detail FROM checks;

-- Its work has ended well, and nobody has looked yet whether that is so.
ALTER TABLE runs ADD COLUMN unchecked INTEGER NOT NULL DEFAULT 0;
