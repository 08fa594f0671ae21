"""Everything that must survive a crash: one SQLite file, its schema, its lock, and one owner per group of tables."""
