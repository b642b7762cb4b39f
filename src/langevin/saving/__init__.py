"""Runs on disk: objects as JSON and arrays, a folder that is always whole, and a journal of what a run has found."""
