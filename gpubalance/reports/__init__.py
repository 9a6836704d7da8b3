"""Pure functions from a run and its judgement to text; one file a format."""
