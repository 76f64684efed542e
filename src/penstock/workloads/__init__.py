"""Applications, clusters and arrival processes: those of the papers, and random generators of more.

`application("word-count")`, `cluster("hetero:machines=20,seed=3")` and `arrivals("poisson:rate=100")` create one by
name. Nothing is read or generated before it is requested, and all randomness comes from a seed or a numpy generator.
"""
