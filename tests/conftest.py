"""Settings that all tests share."""

from hypothesis import settings

# The same examples each time, so that a failure is a change and not luck; no deadline on shared machines.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")
