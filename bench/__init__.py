"""Named workloads, each beside its raw baseline."""
