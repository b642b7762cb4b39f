"""The catalogue of contestants: ours, then peers', each with one line on how it is set."""

from functools import partial

import langevin as lv
from langevin.compare import peer_blackjax, peer_numpyro, peer_posteriors, peer_tfp, planned
from langevin.compare import settings as by
from langevin.compare.contestant import (
    Contestant,
    few_rows,
    identified,
    not_logistic,
    not_written,
    predicts,
    without_prior,
)
from langevin.compare.ours import built

_OURS, _BLACKJAX, _NUMPYRO, _POSTERIORS = "langevin", "blackjax", "NumPyro", "posteriors"
_TORCH = "pip install torch==2.13.0 posteriors==0.1.3 (a CPU build of torch; other builds bring gigabytes)"
_TENSORFLOW = "pip install tensorflow==2.21.0 tensorflow-probability==0.25.0 tf-keras==2.21.0 (two gigabytes)"
_NOTHING = "nothing is set"
_BALANCED = "minibatches; the step that balances the kernel's stated bias with its noise for the steps that fit"
_LAPLACE = f"{_BALANCED}; in Laplace units"
_ADAPTED = "all the data, Laplace units, step adapted to its acceptance in 300 steps"
_STEIN = "from the mode; step from a grid of five by the Stein discrepancy of a trial; bars by ArviZ"
_AS_OURS = "from the mode, in the model's coordinates; SGLD's balanced step, as no tuner comes with it; bars by ArviZ"
_DRAWS_OF_BLACKJAX = ("blackjax", "arviz_stats")
_WARM = "dense mass matrix, warm-up of 1000, 300 or 100 steps, what fits into half the time; bars by ArviZ"
_PRIOR = "all the data, units of the prior, step adapted to its acceptance in 300 steps"

_ALL = (
    Contestant(
        "sample",
        _OURS,
        f"lv.sample(time_limit=...); {_NOTHING}, but method='sghmc' where predictions are compared",
        planned.sample("auto"),
    ),
    Contestant(
        "sample-exact",
        _OURS,
        f"lv.sample(method='exact'); {_NOTHING}",
        planned.sample("exact"),
        refuses=identified,
    ),
    Contestant("laplace", _OURS, f"lv.laplace alone, a normal law at the mode; {_NOTHING}", planned.laplace),
    Contestant("sgld", _OURS, "the paper's: minibatches, (a m + b)^-1/3 by lv.tune, raw averages", built(by.tuned)),
    Contestant(
        "sgld-corrected",
        _OURS,
        "the same chains, averages corrected by the Laplace model's Poisson solution",
        built(by.tuned, "corrected"),
        refuses=predicts,
    ),
    Contestant(
        "sgld-cv",
        _OURS,
        "SGLD, first-order control variates, Laplace units, balanced step",
        built(by.whitened(lv.SGLD(), by.control_variate)),
    ),
    Contestant(
        "lm-cv2",
        _OURS,
        "Leimkuhler-Matthews, second-order control variates, Laplace units, step at most 0.5, raw averages",
        built(by.whitened(lv.LeimkuhlerMatthews(), by.second_order, most=0.5)),
    ),
    Contestant("sghmc", _OURS, _LAPLACE, built(by.whitened(lv.SGHMC()))),
    Contestant("baoab", _OURS, _LAPLACE, built(by.whitened(lv.BAOAB()))),
    Contestant("ubu", _OURS, _LAPLACE, built(by.whitened(lv.UBU()))),
    Contestant("sgnht", _OURS, _LAPLACE, built(by.whitened(lv.SGNHT()))),
    Contestant("sgfs", _OURS, "minibatches, Laplace units, twice the balanced step of SGLD", built(by.fisher)),
    Contestant(
        "psgld", _OURS, "RMSprop over the whole past, with Gamma; SGLD's balanced step", built(by.preconditioned)
    ),
    Contestant("psgld-no-gamma", _OURS, "psgld without Gamma", built(partial(by.preconditioned, gamma=False))),
    Contestant(
        "svrg", _OURS, "SGLD in Laplace units, a full pass every N/n steps", built(by.whitened(lv.SGLD(), by.svrg))
    ),
    Contestant("saga", _OURS, "SGLD in Laplace units, a table of gradients", built(by.whitened(lv.SGLD(), by.saga))),
    Contestant(
        "romberg",
        _OURS,
        "SGLD in Laplace units at two steps on one noise, extrapolated; balanced step",
        built(by.whitened(lv.SGLD()), pair=True),
        refuses=predicts,
    ),
    Contestant(
        "importance", _OURS, "SGLD in Laplace units, rows by the size of their gradients", built(by.weighted(False))
    ),
    Contestant("stratified", _OURS, "SGLD in Laplace units, rows from five strata", built(by.weighted(True))),
    Contestant("mala", _OURS, _ADAPTED, built(by.accepted(lv.MALA()))),
    Contestant(
        "manifold-mala", _OURS, "all the data, the Hessian of each place as metric, unit step", built(by.metric)
    ),
    Contestant(
        "manifold-full", _OURS, "manifold-mala with the drift of its diffusion", built(partial(by.metric, full=True))
    ),
    Contestant("hmc", _OURS, f"{_ADAPTED}, 5 leapfrog steps", built(by.accepted(lv.HMC(5)))),
    Contestant("nuts", _OURS, _ADAPTED, built(by.accepted(lv.NUTS()))),
    Contestant("pcn", _OURS, _PRIOR, built(by.prior_units(lv.PCN())), refuses=without_prior),
    Contestant("cnl", _OURS, _PRIOR, built(by.prior_units(lv.CrankNicolsonLangevin())), refuses=without_prior),
    Contestant(
        "austerity", _OURS, "random walk of 2.4/sqrt(d) Laplace sds, t tests at 0.01", built(by.sequential(False))
    ),
    Contestant(
        "confidence",
        _OURS,
        "random walk of 2.4/sqrt(d) Laplace sds, a concentration bound at 0.1",
        built(by.sequential(True)),
        refuses=not_logistic,
    ),
    Contestant("svi", _OURS, "lv.svi, mean field, minibatches, its defaults", planned.svi("mean_field"), ("optax",)),
    Contestant("svi-full", _OURS, "lv.svi, full rank, minibatches, its defaults", planned.svi("full_rank"), ("optax",)),
    Contestant(
        "blackjax-sgld",
        _BLACKJAX,
        _AS_OURS,
        peer_blackjax.minibatches(peer_blackjax.sgld, lambda delta: 0.5 * delta),
        _DRAWS_OF_BLACKJAX,
    ),
    Contestant(
        "blackjax-sghmc",
        _BLACKJAX,
        f"{_AS_OURS}; ten steps a minibatch",
        peer_blackjax.minibatches(peer_blackjax.sghmc, lambda delta: 0.1 * delta**0.5, 10),
        _DRAWS_OF_BLACKJAX,
    ),
    Contestant(
        "blackjax-sgnht", _BLACKJAX, _STEIN, peer_blackjax.minibatches(peer_blackjax.sgnht, None), _DRAWS_OF_BLACKJAX
    ),
    Contestant("blackjax-nuts", _BLACKJAX, f"all the data, {_WARM}", peer_blackjax.nuts, _DRAWS_OF_BLACKJAX),
    Contestant(
        "numpyro-nuts", _NUMPYRO, f"all the data, {_WARM}", peer_numpyro.nuts(False), ("numpyro", "arviz_stats")
    ),
    Contestant(
        "numpyro-hmcecs",
        _NUMPYRO,
        f"ten minibatches of rows, Taylor proxy at the mode, {_WARM}",
        peer_numpyro.nuts(True),
        ("numpyro", "arviz_stats"),
        refuses=few_rows,
    ),
    Contestant(
        "numpyro-normal",
        _NUMPYRO,
        "AutoNormal, minibatches, Adam from 0.05 to 0.0005",
        peer_numpyro.guide(False),
        ("numpyro",),
    ),
    Contestant(
        "numpyro-mvn",
        _NUMPYRO,
        "AutoMultivariateNormal, minibatches, Adam from 0.05 to 0.0005",
        peer_numpyro.guide(True),
        ("numpyro",),
    ),
    *(
        Contestant(
            f"posteriors-{name}",
            _POSTERIORS,
            _AS_OURS,
            peer_posteriors.sampler(name),
            ("torch", "posteriors", "arviz_stats"),
            _TORCH,
            not_written("PyTorch"),
        )
        for name in ("sgld", "sghmc")
    ),
    Contestant(
        "tfp-psgld",
        "TensorFlow Probability",
        "RMSprop over a thousand steps; its Gamma is zero when it runs; from the mode, psgld's step; bars by ArviZ",
        peer_tfp.psgld,
        ("tensorflow", "tensorflow_probability", "tf_keras", "arviz_stats"),
        _TENSORFLOW,
        not_written("TensorFlow"),
    ),
)

SAMPLERS = {one.name: one for one in _ALL}
