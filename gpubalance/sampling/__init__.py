"""The sensor process beside the ranks, and the parent's hold on it."""
