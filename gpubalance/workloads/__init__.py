"""What a rank does: the only code inside the clock, and the only importer of torch."""
