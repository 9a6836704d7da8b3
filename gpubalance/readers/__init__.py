"""Foreign logs: what other tools wrote."""
