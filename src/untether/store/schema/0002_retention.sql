-- What is removed after a time, and what refers to it, is found without reading whole tables.
CREATE INDEX runs_thread ON runs (thread_id, id);
CREATE INDEX runs_process ON runs (process_id);
CREATE INDEX messages_update ON messages (update_id) WHERE update_id IS NOT NULL;
CREATE INDEX messages_notice ON messages (notice) WHERE notice IS NOT NULL;
CREATE INDEX deliveries_target ON deliveries (target) WHERE target IS NOT NULL;
CREATE INDEX interactions_delivery ON interactions (delivery_id) WHERE delivery_id IS NOT NULL;
