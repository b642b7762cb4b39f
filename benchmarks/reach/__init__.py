"""How many posteriors `lv.sample` answers: thirty-five of posteriordb, each written anew in JAX."""
