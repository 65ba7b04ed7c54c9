"""A broker's tables in the form that the broker of the other backend reads."""
