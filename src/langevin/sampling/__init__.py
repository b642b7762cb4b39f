"""`lv.sample`: the right answer without tuning. rules -> plan -> session -> result."""

from langevin.networks.result import NetworkResult
from langevin.sampling.forecasting import Forecast, forecast
from langevin.sampling.planning import Plan, plan
from langevin.sampling.result import Result
from langevin.sampling.sampler import resume, sample

__all__ = ["Forecast", "NetworkResult", "Plan", "Result", "forecast", "plan", "resume", "sample"]
