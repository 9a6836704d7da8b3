"""Does the tool name faults that were played on purpose? Rows, what is seen in a pass, and the score."""
