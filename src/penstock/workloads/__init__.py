"""What to schedule and where: the papers' applications and clusters, and seeded generators of more.

`application("word-count")`, `cluster("hetero:machines=20,seed=3")` and `arrivals("poisson:rate=100")` look one up by
name. Nothing is read or drawn before it is asked for, and everything random comes from a seed or a numpy generator.
"""
