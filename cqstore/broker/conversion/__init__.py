"""A broker's metadata in the form that the broker of the other backend reads."""
