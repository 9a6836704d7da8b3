"""Public doubles: ready-made runs, scripted ranks, a stand-in NVML."""
