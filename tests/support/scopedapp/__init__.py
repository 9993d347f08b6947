"""Two tenant-owned tables and an append-only one, to test the kernel's guards without the apps above it."""
