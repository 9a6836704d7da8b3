"""The parent's side of a run: plan, start and follow the ranks. No torch, no CUDA, no NVML."""
