"""Small files of cqstore's own that survive a rebuild of everything else."""
