-- Questions that are answered one after the other, and the last reminder of a request.
ALTER TABLE interactions ADD COLUMN answers TEXT NOT NULL DEFAULT '[]';     -- store.interactions.Given as JSON
ALTER TABLE interactions ADD COLUMN reminder_id INTEGER REFERENCES deliveries (id);
ALTER TABLE interactions ADD COLUMN reminded REAL;

-- What a chat or topic has chosen for its runs; NULL leaves it to the chat of the topic, then to the settings.
ALTER TABLE chats ADD COLUMN permission_mode TEXT;
ALTER TABLE chats ADD COLUMN ask_questions INTEGER;

-- Words that a person was asked for, about an open request. One at a time for each person in a chat.
CREATE TABLE awaited (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,  -- buttons carry it: never used again
    interaction TEXT NOT NULL REFERENCES interactions (key),
    transport   TEXT NOT NULL,
    chat        TEXT NOT NULL,
    thread      TEXT NOT NULL DEFAULT '',
    sender      TEXT NOT NULL,
    purpose     TEXT NOT NULL CHECK (purpose IN ('reason', 'choice', 'edit', 'confirm', 'answer')),
    about       INTEGER NOT NULL DEFAULT 0,  -- which choice or question
    text        TEXT NOT NULL DEFAULT '',    -- what was typed and waits to be confirmed
    delivery_id INTEGER REFERENCES deliveries (id),  -- the message that asks for it
    UNIQUE (transport, chat, thread, sender)
);
CREATE INDEX awaited_interaction ON awaited (interaction);

-- Rules that a person allowed for good: in a project, else in a folder. They are sent at every start of its engine.
CREATE TABLE grants (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,  -- buttons carry it: never used again
    place      TEXT NOT NULL,                -- what people call the project or folder
    project    TEXT NOT NULL DEFAULT '',
    folder     TEXT NOT NULL DEFAULT '',     -- absolute; '' with a project
    engine     TEXT NOT NULL,
    rule       TEXT NOT NULL,                -- in the engine's own words
    granted_by TEXT NOT NULL,
    granted    REAL NOT NULL,
    UNIQUE (project, folder, engine, rule)
);
