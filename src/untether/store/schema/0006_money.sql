-- What runs cost: one row for each that ended and used something. It stays when the texts of its run are gone.
CREATE TABLE ledger (
    run_id        INTEGER PRIMARY KEY REFERENCES runs (id),
    time          REAL NOT NULL,          -- its end, epoch seconds
    engine        TEXT NOT NULL,
    place         TEXT NOT NULL,          -- the project, else the folder
    model         TEXT NOT NULL DEFAULT '',
    cost_usd      REAL,                   -- NULL: the engine did not tell
    input_tokens  INTEGER,
    output_tokens INTEGER
);
CREATE INDEX ledger_time ON ledger (time);

INSERT INTO ledger (run_id, time, engine, place, model, cost_usd, input_tokens, output_tokens)
SELECT r.id, r.ended, t.engine, COALESCE(t.project, t.cwd), r.model, json_extract(r.usage, '$.cost_usd'),
       json_extract(r.usage, '$.input_tokens'), json_extract(r.usage, '$.output_tokens')
FROM runs r JOIN threads t ON t.id = r.thread_id
WHERE r.ended IS NOT NULL
  AND COALESCE(json_extract(r.usage, '$.cost_usd'), json_extract(r.usage, '$.input_tokens'),
               json_extract(r.usage, '$.output_tokens')) IS NOT NULL;

-- A run that failed for a spent quota, to be gone on with when that is renewed.
CREATE TABLE schedules (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,  -- buttons carry it: never used again
    run_id      INTEGER NOT NULL UNIQUE REFERENCES runs (id),
    due         REAL NOT NULL,            -- epoch seconds
    state       TEXT NOT NULL CHECK (state IN ('offered', 'waiting', 'fired', 'dropped')),
    delivery_id INTEGER REFERENCES deliveries (id)  -- the part that offers it
);
CREATE INDEX schedules_due ON schedules (due) WHERE state = 'waiting';
CREATE INDEX schedules_delivery ON schedules (delivery_id) WHERE delivery_id IS NOT NULL;

-- Whether a chat or topic goes on by itself when a spent quota is renewed; NULL leaves it to the chat of the topic,
-- then to the settings.
ALTER TABLE chats ADD COLUMN auto_continue INTEGER;
