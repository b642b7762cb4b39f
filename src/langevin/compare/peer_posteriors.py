"""The library posteriors, on PyTorch: its SGLD and SGHMC, four chains as one array, so that a step is one call."""

from functools import partial
from time import process_time
from typing import Any

import jax
import numpy as np

import langevin as lv
from langevin.compare.contestant import Build, Replicate
from langevin.compare.found import Found, from_draws, measured
from langevin.compare.problem import Problem
from langevin.compare.steps import MOST_ROWS, balanced_sgld

CHAINS, _STRIDE = 4, 4
_PORTION, _BURN_IN = 64, 0.1
# Share of the momentum that a step of SGHMC forgets.
_FORGOTTEN = 0.1


def _log_likelihood(family: str, theta: Any, batch: Any) -> Any:
    """Log likelihoods (chains, rows) of theta (chains, d)."""
    import torch

    if family == "location":
        return -0.5 / 25.0 * (batch[0] - theta) ** 2
    x, y = batch
    if family == "linear":
        residual = (y - torch.einsum("crd,cd->cr", x, theta[:, :-1])) * torch.exp(-theta[:, -1:])
        return -0.5 * residual**2 - theta[:, -1:]
    eta = torch.einsum("crd,cd->cr", x, theta)
    return torch.nn.functional.logsigmoid(y * eta) if family == "logistic" else y * eta - torch.exp(eta)


def sampler(name: str) -> Build:
    """`posteriors.sgmcmc` of that name from the mode, its rate from SGLD's balanced delta for the steps that fit."""

    def build(problem: Problem, seconds: float) -> Replicate:
        import torch

        torch.set_num_threads(1)
        data = tuple(torch.tensor(np.asarray(leaf)) for leaf in jax.tree.leaves(problem.data))
        pace = {"steps": 2000.0}
        return partial(measured, lambda seed: _Stepping(problem, name, data, seed, seconds, pace))

    return build


class _Stepping:
    """Four chains of one learning rate."""

    def __init__(
        self, problem: Problem, name: str, data: Any, seed: int, seconds: float, pace: dict[str, float]
    ) -> None:
        import torch

        self._problem, self._name, self._data = problem, name, data
        self._seconds, self._pace, self._spent = seconds, pace, 0.0
        self._generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        anchor = lv.laplace(problem.target, problem.data, problem.theta_0)
        self.visits = float(anchor.cost + min(problem.num_data, MOST_ROWS))
        self._begin(np.asarray(anchor.theta, np.float32), balanced_sgld(problem, anchor, CHAINS * pace["steps"]))
        self._draws: list[Any] = []

    def _begin(self, mode: Any, delta: float) -> None:
        """Its log posterior is divided by N and its temperature 1/N, so that rates have other units.

        SGLD: lr = N delta/2. SGHMC: theta moves by lr/sqrt(N) a step in the units of a momentum of variance 1, which
        forgets a = alpha lr: it moves as delta = 2 lr^2/(N a) does.
        """
        import posteriors
        import torch

        one, num = self._problem, self._problem.num_data
        half = None if one.prior_sd is None else torch.tensor(0.5 / one.prior_sd**2)

        def log_posterior(theta: Any, batch: Any) -> Any:
            # Chains do not meet: the gradient of the sum is that of each.
            fit = _log_likelihood(str(one.family), theta, batch).mean(dim=1).sum()
            return fit - torch.sum(half * theta**2) / num, torch.tensor([])

        if self._name == "sgld":
            options = {"lr": 0.5 * num * delta}
        else:
            rate = float(np.sqrt(0.5 * num * _FORGOTTEN * delta))
            options = {"lr": rate, "alpha": _FORGOTTEN / rate}
        part = getattr(posteriors.sgmcmc, self._name)
        self._transform = part.build(log_posterior, temperature=1.0 / num, **options)
        start = torch.tensor(np.tile(mode, (CHAINS, 1)))
        # At rest: the momenta that it draws by itself are those of temperature 1.
        self._state = self._transform.init(start) if self._name == "sgld" else self._transform.init(start, momenta=0.0)

    def _moved(self, steps: int) -> Any:
        """Draws (draws, chains, d), one for every four steps."""
        import torch

        n, kept = self._problem.batch_size, []
        for m in range(steps):
            rows = torch.randint(self._problem.num_data, (CHAINS, n), generator=self._generator)
            self._state, _ = self._transform.update(self._state, tuple(leaf[rows] for leaf in self._data))
            if m % _STRIDE == _STRIDE - 1:
                kept.append(self._state.params.detach().numpy().copy())
        self.visits += CHAINS * n * steps
        return np.stack(kept).astype(np.float64)

    def advance(self, seconds: float, visits: float) -> bool:
        """See `Chain`: 64 steps."""
        began = process_time()
        self._draws.append(self._moved(_PORTION))
        self._spent += process_time() - began
        self._pace["steps"] = _PORTION * len(self._draws) / max(self._spent, 1e-6) * self._seconds
        return True

    def look(self) -> Found:
        """See `Chain`; the first tenth is left out."""
        draws = np.concatenate(self._draws).swapaxes(0, 1)
        return from_draws(self._problem, draws[:, int(_BURN_IN * draws.shape[1]) :])
