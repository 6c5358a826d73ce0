-- What a run's model was told at its beginning: of each part how long it was, never its text.
CREATE TABLE prompt_parts (
    run_id         TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
    n              INTEGER NOT NULL,
    part           TEXT NOT NULL,
    -- Which file, which skill, which tools.
    name           TEXT,
    characters     INTEGER NOT NULL,
    -- Estimated.
    tokens         INTEGER NOT NULL,
    characters_cut INTEGER NOT NULL,
    -- Why it was cut or left out.
    note           TEXT,
    PRIMARY KEY (run_id, n)
) STRICT, WITHOUT ROWID;

CREATE VIEW v1_prompt_parts AS
SELECT run_id, n, part, name, characters, tokens, characters_cut, note FROM prompt_parts;
