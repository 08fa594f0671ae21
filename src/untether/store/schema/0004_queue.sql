-- What a chat or topic does with a message that is sent while its agent is busy: steer, queue or interrupt.
-- NULL leaves it to the chat of the topic, then to the settings.
ALTER TABLE chats ADD COLUMN busy TEXT;

-- The order of a thread's queue is that of `rank`, then of `id`.
ALTER TABLE messages ADD COLUMN rank INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN inlined TEXT NOT NULL DEFAULT '';      -- the part of `text` that came in files
ALTER TABLE messages ADD COLUMN attachments TEXT NOT NULL DEFAULT '[]'; -- store.threads.File as JSON
ALTER TABLE messages ADD COLUMN album TEXT NOT NULL DEFAULT '';
ALTER TABLE messages ADD COLUMN edit_told INTEGER NOT NULL DEFAULT 0;  -- its sender knows that an edit came too late
CREATE INDEX messages_sent ON messages (transport, chat, message_id);
CREATE INDEX messages_chat ON messages (transport, chat, topic, id);
CREATE INDEX messages_album ON messages (transport, chat, album) WHERE album <> '';

-- What a person wrote, before directives were read: one row for each message of the chat that is part of it.
CREATE TABLE message_parts (
    message    INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    place      INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    text       TEXT NOT NULL,
    glue       TEXT NOT NULL DEFAULT '',  -- between it and the next part
    PRIMARY KEY (message, place)
) WITHOUT ROWID;
CREATE INDEX message_parts_sent ON message_parts (message_id);

-- A stop of this run was asked for; it is done when the run has ended.
ALTER TABLE runs ADD COLUMN stop_asked INTEGER NOT NULL DEFAULT 0;
