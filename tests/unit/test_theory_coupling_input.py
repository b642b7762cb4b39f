"""Coupled chains: what `diffusion_limit` refuses, and how it says so."""

import pytest

import langevin as lv
from langevin.theory import diffusion_limit
from tests.unit.test_theory_coupling import SMALL, TARGET, X


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": 3}, "target must be an lv.Target"),
        ({"time": 0.0}, "time must be a positive finite number"),
        ({"time": "1"}, "time must be a positive finite number"),
        ({"meshes": []}, "meshes must be a list of distinct"),
        ({"meshes": [8, 8]}, "meshes must be a list of distinct"),
        ({"meshes": [8.0]}, "meshes must be a list of distinct"),
        ({"meshes": 8}, "meshes must be a list of distinct"),
        ({"alpha": 1.0}, r"alpha must be a number in \[0, 1\)"),
        ({"alpha": "a"}, r"alpha must be a number in \[0, 1\)"),
        ({"alpha": 0.95, "refine": 2, "meshes": [1000]}, "refine must leave every step a cell"),
        ({"kernel": lv.MALA()}, "kernel must be a kernel that takes gradients"),
        ({"kernel": lv.SGLD}, "kernel must be a kernel, got"),
        ({"paths": 0}, "paths must be an integer of at least 1"),
        ({"keep_paths": 9}, "keep_paths must be an integer of at least 0 and at most 5"),
        ({"seed": -1}, "seed must be an integer"),
        ({"subsample": 3}, "subsample must be a way to draw minibatches"),
        ({"subsample": lv.WithoutReplacement(7)}, "batch_size must be at most the number of data"),
        ({"data": None}, "data must not be None"),
        ({"theta_0": 1}, "theta_0 must be a floating-point array"),
        ({"time": 1e30}, "meshes must be fine enough"),
    ],
)
def test_bad_input_is_refused_with_a_remedy(options, words):
    with pytest.raises(ValueError, match=words):
        diffusion_limit(**{"target": TARGET, "data": X, "theta_0": 1.5, **SMALL, **options})


def test_no_data_means_no_minibatches():
    target = lv.Target(lambda t: -0.5 * t**2)
    with pytest.raises(ValueError, match="there are no data"):
        diffusion_limit(target, None, 1.0, **SMALL, subsample=lv.WithoutReplacement(2))
    assert diffusion_limit(target, None, 1.0, **SMALL).error_at_mesh.shape == (2, 5)
