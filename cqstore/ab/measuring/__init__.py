"""Resource usage of processes and the machine: time, memory, disk; latency histograms."""
