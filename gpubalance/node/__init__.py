"""What this machine is: devices, drivers, host. Passive: no CUDA context is ever made here."""
