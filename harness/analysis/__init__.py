"""Statistics over result rows: pure functions. Never imports torch."""
