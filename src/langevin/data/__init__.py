"""Data and the ways to draw minibatches from it."""
