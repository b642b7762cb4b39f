"""What stands around the tables of `benchmarks.shards`."""

BEFORE = """# Shards

What would it cost to leave data where they lie, on several machines? Chains can travel between the owners of shards, or
every owner samples by itself and the results are multiplied. This page measures both: what they get wrong, and what
they would send. Made by `python -m benchmarks.shards --output docs/shards.md`.

**What runs where.** `lv.shards.joined` puts the shards one after the other, and `lv.run` with `lv.Sharded` takes its
minibatches from there. With `engine=lv.Processes()` or `lv.Ray()` each worker gets some of the shards and nothing else,
and chains travel: at the end of each stay they go with their books to the owner of the next shard, and every number is
that of the run in one place, to the bit. Shards in memory are cut up and sent once. In a file they are opened by each
owner, which looks at its own rows alone. The set-up (mode, Hessian, drifts) goes through all the data where the call
is made, unless it stands inside `lv.shards.owned`: then each owner goes through its shards, and sends a gradient, a
Hessian or a pull for each of them. Where the call is made the data must be there to be opened; some ten thousand rows
are read, on which the search for the mode begins. What a shard is asked at once is a pass over its rows, 4 d + 48 of
them by `with_drifts`: the `timeout` of the engine must be longer, and Ctrl-C is heard between two. What goes wrong says
with which shard. Each stay costs a message with the books of a chain: pass a long `stay` where the shards are alike.
Messages below are counted, not sent. Products need no engine: run `lv.sample` where each shard is, with
`lv.shards.subposterior`, and bring the draws together.

```python
shards = [...]                                                     # arrays, or dicts of arrays, one entry a machine
data = lv.shards.joined(shards)
subsample = lv.Sharded(20, sizes=[len(s["y"]) for s in shards], stay=100)    # probabilities=: how often to visit each
with lv.shards.owned(subsample, target, data, engine=None) as owned:                        # lv.Processes(), lv.Ray()
    anchor = lv.laplace(target, owned, theta_0)
    gradient = lv.ControlVariate(anchor, order=2)
    subsample = lv.shards.with_drifts(subsample, target, owned, gradient, anchor)
ledger = lv.run(target, data, theta_0, subsample=subsample, gradient=gradient, anchor=anchor,
                kernel=lv.LeimkuhlerMatthews(), coordinates=lv.Whitened.by(anchor), schedule=lv.Constant(0.5),
                num_steps=20_000, chains=4)
lv.estimate(ledger, method="corrected")
```

A step in shard `s` of `N_s` rows, visited with probability `q_s`, weighs its `n` rows by `N_s / (n q_s)`: then every
step is unbiased, over shards and rows. Within a stay it is not: the chain is drawn towards what its shard alone says.
The bias of averages grows with `stay * delta` until a stay is longer than the chain's memory, where each stay samples
a shard's own posterior. `with_drifts` asks every shard how it pulls on a chain, at some Laplace draws; from that the
stationary law of a chain on linear drifts follows exactly (by doubling, whatever the stay), and `lv.estimate` puts
the bias into the interval and says `bias_dominates` where it exceeds the error bar. What a shard's gradient has
beyond a line counts as an order of magnitude. Without `with_drifts`, long stays are `uncorrected`.

Control variates of second order take what differs between shards off: the sums of gradients and Hessians at the
anchor over all shards are `d + d^2` numbers that every chain carries, and only what is beyond them comes from the
shard at hand. So one global sum serves; sums of each shard's own, used while a chain is there, would bring the
difference between shards back. A product of subposteriors sends one message a shard, and cannot tell how wrong it is.
"""

AFTER = """
Errors are those of the worst of four parameters, the mean over the seeds +- its standard error: a method without any
bias has an error of its Monte Carlo noise, never 0. Seconds are processor seconds of all the work, compilation
included, on one machine that other work shared. Messages and bytes are counted from what an owner of a shard would
send, none was sent: in the set-up one message a pass and shard, then one for each move of a chain; a product sends 2000
draws a shard. The chains visit all shards equally often. `seconds` of a product are those of the shards' own
`lv.sample` calls and of the combination.

What stands out. Weights that forget how often a shard is visited are the negative control: on unlike shards they are
wrong, and their status cannot know it; on equal shards there is nothing to forget. `bias_dominates` beside travelling
chains with control variates is a bias of 2e-4 of an sd against an error bar that is shorter still. Plain minibatches
are as noisy as they are anywhere: 20,000 steps of them are few. The index chain of the two kernel products hardly
moves: on shards that are Gaussian by construction (eight seeds, not in this table) their means scattered by 0.3 to
0.6 sds about the product at this number of draws, in no direction: much of their error here is that. The M-posterior
is a mixture of the shards' posteriors, each as wide as that of all the data and about sqrt(shards) sds away from it:
made for shards of which some are wrong, it is no approximation of the posterior of good ones."""
