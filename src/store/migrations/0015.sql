-- What people are shown of a run; NULL in rows that are older than this column.
ALTER TABLE runs ADD COLUMN payloads TEXT;
