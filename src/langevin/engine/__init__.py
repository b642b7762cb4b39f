"""One compiled loop, one host loop, one record."""
