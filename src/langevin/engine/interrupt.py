"""Moved to `langevin.limits`; the engine still imports it from here."""

from langevin.limits import stop_requests

__all__ = ["stop_requests"]
