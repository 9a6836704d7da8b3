"""gpubalance tells whether a GPU node can train evenly, and which part holds it back if not."""

__version__ = "0.1.0"
