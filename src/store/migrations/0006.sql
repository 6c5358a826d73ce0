-- What tells the output of a gate from another one: of a run, and of the job's last success.
ALTER TABLE runs ADD COLUMN gate_digest TEXT;
ALTER TABLE jobs ADD COLUMN gate_digest TEXT;
