"""The process host: agent processes, their journals, and the driver between them and a session."""
