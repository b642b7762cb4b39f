"""SGHMC as the library posteriors has it, on the same number of gradients; needs torch, posteriors and NumPy only.

    python benchmarks/networks/peer_posteriors.py problem.npz answer.npz PASSES SEED

in an environment with `pip install torch==2.13.0 posteriors==0.1.3`. Step and friction are searched for on a tenth of
the training rows, and the gradients of that are charged.
"""

import sys
import time

import numpy as np
import posteriors
import torch

BATCH, CHAINS = 128, 4
RATES, FRICTIONS = (1e-3, 1e-2, 1e-1), (1.0, 10.0)
# The first part of a chain is thrown away, and every so many steps of the rest are looked at.
SEARCH_SHARE, BURN_IN_SHARE, STRIDE = 0.1, 0.25, 250


def outputs(theta, x):
    return torch.tanh(x @ theta["w1"] + theta["b1"]) @ theta["w2"] + theta["b2"]


def chain(x, y, new, shapes, sds, rate, friction, steps):
    """Probabilities at new rows averaged over one chain from a draw of the prior."""
    num = len(x)

    def log_posterior(theta, batch):
        x, y = batch
        prior = -0.5 * sum(torch.sum((theta[name] / sd) ** 2) for name, sd in sds.items())
        fit = -torch.nn.functional.cross_entropy(outputs(theta, x), y)
        return fit + prior / num, torch.tensor([])

    theta = {name: sds[name] * torch.randn(shape) for name, shape in shapes.items()}
    transform = posteriors.sgmcmc.sghmc.build(log_posterior, lr=rate, alpha=friction, temperature=1.0 / num)
    state = transform.init(theta)
    total, count = np.zeros(1), 0
    for m in range(steps):
        rows = torch.randint(num, (BATCH,))
        state, _ = transform.update(state, (x[rows], y[rows]))
        if m >= BURN_IN_SHARE * steps and m % STRIDE == 0:
            total = total + torch.softmax(outputs(state.params, new), dim=1).detach().numpy()
            count += 1
    return total / max(count, 1)


def main():
    problem, answer, passes, seed = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    found = np.load(problem)
    x, y, new = torch.tensor(found["x"]), torch.tensor(found["y"], dtype=torch.long), torch.tensor(found["x_test"])
    names = ("w1", "b1", "w2", "b2")
    shapes = {name: tuple(found[f"shape_{name}"].tolist()) for name in names}
    sds = {name: float(found[f"sd_{name}"]) for name in names}
    steps, held, began = int(passes * len(x) / BATCH), len(x) // 10, time.process_time()
    scores = {}
    for rate in RATES:
        for friction in FRICTIONS:
            few = int(SEARCH_SHARE * steps / (len(RATES) * len(FRICTIONS)))
            seen = chain(x[held:], y[held:], x[:held], shapes, sds, rate, friction, few)
            chosen = seen[np.arange(held), y[:held].numpy()]
            scores[rate, friction] = float(np.mean(np.log(np.maximum(chosen, 1e-12))))
    best = max(scores, key=lambda setting: np.nan_to_num(scores[setting], nan=-np.inf))
    each = int((1.0 - SEARCH_SHARE) * steps / CHAINS)
    chains = [chain(x, y, new, shapes, sds, *best, each) for _ in range(CHAINS)]
    np.savez(answer, mean=np.mean(chains, axis=0), chains=chains, setting=best, cpu=time.process_time() - began)


if __name__ == "__main__":
    main()
