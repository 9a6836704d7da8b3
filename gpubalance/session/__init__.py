"""The stories: each command from top to bottom on one screen."""
