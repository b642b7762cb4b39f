"""Every sampler of the library beside peers' on the same posteriors: error at a fixed time, and do intervals hold?"""
