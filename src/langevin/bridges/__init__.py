"""Ways from and to other libraries: ArviZ, NumPyro, scikit-learn. Each loads its library when it is used."""
