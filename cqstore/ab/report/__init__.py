"""Reports of results: in the terminal, as JSON, and as one page that needs nothing else."""
