"""Pure functions from facts to findings, and from findings to one verdict."""
