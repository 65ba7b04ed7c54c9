"""Mirror: has the other backend of double write answer a share of reads again, afterwards."""
