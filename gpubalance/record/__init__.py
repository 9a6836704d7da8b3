"""One run, one file: the words that every other part shares."""
