"""Networks and other models of many parameters: chains without a Gaussian model, asked for predictions."""
