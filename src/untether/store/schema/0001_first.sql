-- What came in, as it came. A row exists before the outside is told that we have it.
CREATE TABLE updates (
    id        INTEGER PRIMARY KEY,
    transport TEXT NOT NULL,
    key       TEXT NOT NULL,              -- update_id of Telegram, a random key of the console
    raw       BLOB NOT NULL,
    received  REAL NOT NULL,              -- epoch seconds
    state     TEXT NOT NULL DEFAULT 'stored' CHECK (state IN ('stored', 'done', 'parked')),
    attempts  INTEGER NOT NULL DEFAULT 0, -- how often its routing began
    UNIQUE (transport, key)
);
CREATE INDEX updates_open ON updates (id) WHERE state = 'stored';

-- What is set for a chat or topic, and the thread that its next message continues.
CREATE TABLE chats (
    transport TEXT NOT NULL,
    chat      TEXT NOT NULL,
    thread    TEXT NOT NULL DEFAULT '',   -- a topic, '' for none
    project   TEXT,
    branch    TEXT,
    current   INTEGER REFERENCES threads (id),
    PRIMARY KEY (transport, chat, thread)
) WITHOUT ROWID;

-- A conversation of ours. The engine's session id is an attribute that may change.
CREATE TABLE threads (
    id        INTEGER PRIMARY KEY,
    transport TEXT NOT NULL,
    chat      TEXT NOT NULL,
    thread    TEXT NOT NULL DEFAULT '',
    engine    TEXT NOT NULL,
    session   TEXT,
    project   TEXT,
    branch    TEXT,
    cwd       TEXT NOT NULL,
    created   REAL NOT NULL
);
CREATE INDEX threads_session ON threads (engine, session);

-- A message of a person on its way to an agent.
CREATE TABLE messages (
    id         INTEGER PRIMARY KEY,
    thread_id  INTEGER NOT NULL REFERENCES threads (id),
    update_id  INTEGER REFERENCES updates (id),
    transport  TEXT NOT NULL,             -- where it was written; a thread may be continued from other chats
    chat       TEXT NOT NULL,
    topic      TEXT NOT NULL DEFAULT '',
    prompt_id  TEXT NOT NULL UNIQUE,      -- a UUID, known to the agent
    message_id TEXT NOT NULL DEFAULT '',  -- in its chat
    sender     TEXT NOT NULL DEFAULT '',
    text       TEXT NOT NULL,
    options    TEXT NOT NULL DEFAULT '{}',
    notice     INTEGER REFERENCES deliveries (id),  -- the part that says that it is queued
    state      TEXT NOT NULL DEFAULT 'queued'
               CHECK (state IN ('queued', 'handed', 'taken', 'answered', 'withdrawn')),
    created    REAL NOT NULL
);
CREATE INDEX messages_open ON messages (thread_id, id) WHERE state IN ('queued', 'handed', 'taken');

-- An agent at work for one thread, and the place up to which its effects were committed.
CREATE TABLE processes (
    id              TEXT PRIMARY KEY,     -- a UUID; also the name of its folder
    thread_id       INTEGER NOT NULL REFERENCES threads (id),
    start           TEXT NOT NULL,        -- StartFacts as JSON
    applied_offset  INTEGER NOT NULL DEFAULT 0,
    applied_ordinal INTEGER NOT NULL DEFAULT 0,
    created         REAL NOT NULL,
    ended           REAL,
    exit            TEXT
) WITHOUT ROWID;
CREATE INDEX processes_open ON processes (thread_id) WHERE ended IS NULL;

-- All that went into a session beside the lines of its agent.
CREATE TABLE inputs (
    process_id TEXT NOT NULL REFERENCES processes (id),
    ordinal    INTEGER NOT NULL,
    offset     INTEGER NOT NULL,          -- bytes of output before it
    time       REAL NOT NULL,
    item       BLOB NOT NULL,
    PRIMARY KEY (process_id, ordinal)
) WITHOUT ROWID;

-- One request to its answer.
CREATE TABLE runs (
    id         INTEGER PRIMARY KEY,
    thread_id  INTEGER NOT NULL REFERENCES threads (id),
    process_id TEXT REFERENCES processes (id),
    message_id INTEGER REFERENCES messages (id),  -- none for a turn that nobody asked for
    title      TEXT NOT NULL DEFAULT '',
    state      TEXT NOT NULL DEFAULT 'running'
               CHECK (state IN ('running', 'done', 'failed', 'stopped', 'interrupted')),
    started    REAL NOT NULL,
    ended      REAL,
    began_offset INTEGER NOT NULL DEFAULT 0,      -- where in the journal it began and ended
    ended_offset INTEGER,
    answer     TEXT NOT NULL DEFAULT '',
    error      TEXT NOT NULL DEFAULT '',
    advice     TEXT NOT NULL DEFAULT '',
    raw_error  TEXT NOT NULL DEFAULT '',
    usage      TEXT NOT NULL DEFAULT '{}',
    steps      INTEGER NOT NULL DEFAULT 0,
    model      TEXT NOT NULL DEFAULT ''
);
CREATE INDEX runs_recent ON runs (started);
CREATE INDEX runs_open ON runs (thread_id) WHERE state = 'running';
CREATE INDEX runs_message ON runs (message_id);

-- Everything that must arrive. A part of a group leaves only after the parts before it.
CREATE TABLE deliveries (
    id         INTEGER PRIMARY KEY,
    grp        INTEGER NOT NULL,          -- id of the first part
    transport  TEXT NOT NULL,
    chat       TEXT NOT NULL,
    thread     TEXT NOT NULL DEFAULT '',
    act        TEXT NOT NULL CHECK (act IN ('send', 'edit', 'delete')),
    role       TEXT NOT NULL,             -- status, answer, interaction, notice
    priority   INTEGER NOT NULL,
    card       BLOB,
    target     INTEGER REFERENCES deliveries (id),  -- the sent part that an edit or deletion is about
    run_id     INTEGER REFERENCES runs (id),
    interaction TEXT,
    state      TEXT NOT NULL DEFAULT 'pending'
               CHECK (state IN ('pending', 'sending', 'sent', 'unknown', 'failed')),
    attempts   INTEGER NOT NULL DEFAULT 0,
    message_id TEXT,
    error      TEXT NOT NULL DEFAULT '',
    created    REAL NOT NULL,
    sent       REAL
);
CREATE INDEX deliveries_open ON deliveries (transport, chat, priority, grp, id) WHERE state IN ('pending', 'sending');
CREATE INDEX deliveries_message ON deliveries (transport, chat, message_id);
CREATE INDEX deliveries_run ON deliveries (run_id);

-- What only a person may decide. `key` is short and random: it is what a button carries.
CREATE TABLE interactions (
    key         TEXT PRIMARY KEY,
    process_id  TEXT NOT NULL REFERENCES processes (id),
    run_id      INTEGER NOT NULL REFERENCES runs (id),
    request     TEXT NOT NULL,            -- the engine's id of it
    record      BLOB NOT NULL,            -- Interaction as JSON
    state       TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'decided', 'withdrawn')),
    delivery_id INTEGER REFERENCES deliveries (id),  -- the part with the buttons
    decision    TEXT,
    decided_by  TEXT NOT NULL DEFAULT '',
    decided     REAL,
    opened      REAL NOT NULL,
    UNIQUE (process_id, request)
) WITHOUT ROWID;
CREATE INDEX interactions_open ON interactions (opened) WHERE state = 'open';

CREATE TABLE kv (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
