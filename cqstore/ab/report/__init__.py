"""Reports of results: in the terminal, as JSON, and as one self-contained HTML page."""
