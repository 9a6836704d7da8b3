"""Rules of `gpubalance probe`, one file a family. Each is a pure function from a Probe to findings."""
