"""The engines: one folder each, with its session, its spawn recipe and its `BACKEND`."""
