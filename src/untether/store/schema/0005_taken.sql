-- Whether the agent of a run had taken its message: then a run that was cut is gone on with, and not begun again.
ALTER TABLE runs ADD COLUMN taken INTEGER NOT NULL DEFAULT 0;
