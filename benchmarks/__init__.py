"""Speed against the best peer and against the limit of the machine."""
