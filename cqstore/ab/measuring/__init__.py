"""What processes and the machine spend: time, memory, disk; latencies as histograms."""
