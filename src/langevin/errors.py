"""The exceptions that a caller may want to catch by name."""

from typing import Any


class AnchorError(RuntimeError):
    """No usable posterior mode was found; the message says what was seen and what to change.

    `improper`: the density itself seems to have no finite integral, so that no other sampler would help either.

    Example:
        >>> import jax.numpy as jnp, langevin as lv
        >>> try:
        ...     lv.laplace(lv.Target(lambda t: jnp.sum(t)), None, jnp.zeros(1))
        ... except lv.AnchorError:
        ...     print("there is no mode")
        there is no mode
    """

    def __init__(self, message: str, improper: bool = False) -> None:
        super().__init__(message)
        self.improper = improper


class Diverged(RuntimeError):
    """A chain became non-finite or ran away. `ledger` holds every whole row before the block in which it happened.

    Example:
        >>> import langevin as lv
        >>> try:
        ...     lv.run(lv.Target(lambda t: -(t**4)), None, 1.0, schedule=lv.Constant(9.0), num_steps=100)
        ... except lv.Diverged:
        ...     print("the step is too large")
        the step is too large
    """

    def __init__(self, message: str, ledger: Any, reason: str = "") -> None:
        super().__init__(message)
        self.ledger, self.reason = ledger, reason

    @classmethod
    def lost(cls, reason: str, ledger: Any) -> "Diverged":
        """The error with what is left said beside the reason."""
        left = (
            "No row was whole."
            if ledger is None
            else f"The rows up to m = {ledger.num_steps} are attached as `.ledger`."
        )
        return cls(f"{reason} {left}", ledger, reason)


class OutOfTime(TimeoutError):
    """`time_limit` ended before the first step could be taken.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.Logistic.simulate(seed=1)
        >>> try:
        ...     lv.plan(model.target, model.data, model.theta_0, time_limit=1e-9)
        ... except lv.OutOfTime:
        ...     print("give it more time")
        give it more time
    """


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during the set-up, when there is nothing yet to return.

    Example:
        >>> import langevin as lv
        >>> issubclass(lv.Interrupted, KeyboardInterrupt)
        True
    """
