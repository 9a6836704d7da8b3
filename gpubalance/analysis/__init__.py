"""Pure functions from a run to facts; one file a question."""
