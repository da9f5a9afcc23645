"""Read models: events in, DuckDB tables and SQL views out; disposable, never evidence."""
