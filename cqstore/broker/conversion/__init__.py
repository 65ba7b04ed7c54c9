"""Conversion of a broker's metadata to the form that a broker with the other backend reads."""
