"""Mirror: repeats a share of reads on the other backend of a double-write store."""
