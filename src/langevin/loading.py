"""`lv.load`: results and fits from their folders."""

from pathlib import Path
from typing import Any, overload

from langevin.sampling import NetworkResult, Result
from langevin.sampling.store import stored_session, with_target
from langevin.saving.folder import Folder
from langevin.saving.journal import FIT, Journal
from langevin.target import Target

PyTree = Any


@overload
def load(path: str | Path, target: None = None, data: PyTree = None, *, theta_0: PyTree = None) -> Result: ...
@overload
def load(
    path: str | Path, target: Target, data: PyTree = None, *, theta_0: PyTree = None
) -> Result | NetworkResult: ...
def load(
    path: str | Path, target: Target | None = None, data: PyTree = None, *, theta_0: PyTree = None
) -> Result | NetworkResult:
    """Reads a run that `Result.save` or `Fit.save` wrote, or a checkpoint; every number is the same to the bit.

    With the target and the data of the run the result can be extended as if it had never been saved; they are checked
    against what is known of them. Runs for many parameters are read with both only. A fit predicts without them, and
    takes the data alone, as the table that they were. `theta_0`, any theta of the same structure, is needed only where
    theta is made of other containers than dict, list and tuple. Cost: up to 8192 datum visits with data, else none.

    Example:
        >>> import langevin as lv, tempfile
        >>> model = lv.models.Logistic.simulate(seed=1)
        >>> result = lv.sample(model.target, model.data, model.theta_0, passes=20)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result.save(folder)
        ...     again = lv.load(folder, model.target, model.data)
        >>> bool((again.mean.value == result.mean.value).all())
        True
    """
    path = Path(path)
    journal = Journal.of(Folder(path), theta_0)
    if FIT in journal:
        if target is not None:
            raise ValueError(f"target must be None: {path} holds a fit, which knows its model. Pass data=table alone.")
        from langevin.regression.fitting import stored_fit

        return stored_fit(journal, path, data)
    if target is None and data is not None:
        raise ValueError(
            "target must be given with data, got None. Pass both to extend the run, or neither to read it."
        )
    # This room and that of sampling stand on each other: sampling comes first.
    from langevin.networks.sampler import stored_network

    network = stored_network(journal, path, target, data)
    if network is not None:
        return network
    session = stored_session(journal, path)
    return Result(session if target is None else with_target(session, target, data))
