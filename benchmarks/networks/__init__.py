"""Predictions of a network on scikit-learn's digits: `python -m benchmarks.networks`."""
