"""Small files of our own that outlive a rebuild of everything else."""
