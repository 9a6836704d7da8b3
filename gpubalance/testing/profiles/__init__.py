"""Profiles of the stand-in NVML: whole nodes by name, from hardware that was looked at or from public documents."""

from gpubalance.testing.profiles.catalogue import load_profile, names, profile
from gpubalance.testing.profiles.hopper import H200, h200_node
from gpubalance.testing.profiles.node import SYSTEM

__all__ = ["H200", "SYSTEM", "h200_node", "load_profile", "names", "profile"]
