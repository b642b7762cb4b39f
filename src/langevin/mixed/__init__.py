"""Mixed models: latent effects of each group integrated out, so that a group is a datum."""
