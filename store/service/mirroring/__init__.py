"""Mirroring: reads that the other backend of double write is asked again, after the fact."""
