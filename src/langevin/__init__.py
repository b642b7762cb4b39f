"""Expectations under Bayesian posteriors from minibatches, with error bars that can be believed."""

import importlib
from typing import TYPE_CHECKING, Any

from langevin.startup import request_small_loops

request_small_loops()

from langevin.analysis import Estimate, estimate, quantiles  # noqa: E402
from langevin.anchor import Anchor, laplace  # noqa: E402
from langevin.coordinates import Coordinates, Preconditioned, Whitened  # noqa: E402
from langevin.data.columns import DataChanged  # noqa: E402
from langevin.data.importer import import_data  # noqa: E402
from langevin.data.sharded import Sharded  # noqa: E402
from langevin.data.source import ArraySource as DataSource  # noqa: E402
from langevin.data.subsample import Blocks, Epochs, Full, WithoutReplacement, WithReplacement  # noqa: E402
from langevin.engine.adapt import adapt_step  # noqa: E402
from langevin.engine.entry import run  # noqa: E402
from langevin.engine.ledger import Ledger  # noqa: E402
from langevin.engine.processes import Processes  # noqa: E402
from langevin.engine.ray import Ray  # noqa: E402
from langevin.errors import AnchorError, Diverged, Interrupted, OutOfTime  # noqa: E402
from langevin.gradients import SAGA, SVRG, ControlVariate, CustomGradient, ImportanceSampled, Minibatch, Stratified  # noqa: E402
from langevin.kernels import (  # noqa: E402
    BAOAB,
    HMC,
    MALA,
    NUTS,
    PCN,
    RWM,
    SGFS,
    SGHMC,
    SGLD,
    SGNHT,
    SGRLD,
    UBU,
    AffineKernel,
    AusterityMH,
    Coarse,
    ConfidenceMH,
    CrankNicolsonLangevin,
    ExactKernel,
    Jumps,
    Kernel,
    LeimkuhlerMatthews,
    ManifoldMALA,
    PreconditionedSGLD,
)
from langevin.loading import load  # noqa: E402
from langevin.mixed.covariance import covariance_root  # noqa: E402
from langevin.mixed.groups import groups  # noqa: E402
from langevin.mixed.marginal import marginal  # noqa: E402
from langevin.observables import Marginals, Moments  # noqa: E402
from langevin.pairs import multilevel, richardson_romberg  # noqa: E402
from langevin.sampling import Forecast, NetworkResult, Plan, Result, forecast, plan, resume, sample  # noqa: E402
from langevin.schedules import Constant, Custom, Polynomial, Power, check_steps  # noqa: E402
from langevin.target import Target, log_sigmoid, sigmoid  # noqa: E402
from langevin.tuning import Tuned, tune  # noqa: E402
from langevin.variational import Variational, svi  # noqa: E402

if TYPE_CHECKING:
    from langevin import models, shards, theory
    from langevin.bridges import sklearn
    from langevin.bridges.numpyro import from_numpyro
    from langevin.regression import Fit, fit


def __getattr__(name: str) -> Any:
    """What stands on further libraries, and rooms that few calls need, load when used: importing stays quick."""
    if name == "from_numpyro":
        return importlib.import_module("langevin.bridges.numpyro").from_numpyro
    if name == "sklearn":
        return importlib.import_module("langevin.bridges.sklearn")
    if name in ("fit", "Fit"):
        return getattr(importlib.import_module("langevin.regression"), name)
    if name in ("models", "shards", "theory"):
        return importlib.import_module(f"langevin.{name}")
    raise AttributeError(f"module 'langevin' has no attribute {name!r}")


__all__ = [
    "BAOAB",
    "HMC",
    "MALA",
    "NUTS",
    "PCN",
    "RWM",
    "SAGA",
    "SGFS",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "SGRLD",
    "SVRG",
    "UBU",
    "AffineKernel",
    "Anchor",
    "AnchorError",
    "AusterityMH",
    "Blocks",
    "Coarse",
    "ConfidenceMH",
    "Constant",
    "ControlVariate",
    "Coordinates",
    "CrankNicolsonLangevin",
    "Custom",
    "CustomGradient",
    "DataChanged",
    "DataSource",
    "Diverged",
    "Epochs",
    "Estimate",
    "ExactKernel",
    "Fit",
    "Forecast",
    "Full",
    "ImportanceSampled",
    "Interrupted",
    "Jumps",
    "Kernel",
    "Ledger",
    "LeimkuhlerMatthews",
    "ManifoldMALA",
    "Marginals",
    "Minibatch",
    "Moments",
    "NetworkResult",
    "OutOfTime",
    "Plan",
    "Polynomial",
    "Power",
    "Preconditioned",
    "PreconditionedSGLD",
    "Processes",
    "Ray",
    "Result",
    "Sharded",
    "Stratified",
    "Target",
    "Tuned",
    "Variational",
    "Whitened",
    "WithReplacement",
    "WithoutReplacement",
    "adapt_step",
    "check_steps",
    "covariance_root",
    "estimate",
    "fit",
    "forecast",
    "from_numpyro",
    "groups",
    "import_data",
    "laplace",
    "load",
    "log_sigmoid",
    "marginal",
    "models",
    "multilevel",
    "plan",
    "quantiles",
    "resume",
    "richardson_romberg",
    "run",
    "sample",
    "shards",
    "sigmoid",
    "sklearn",
    "svi",
    "theory",
    "tune",
]
