"""Readers of other projects' file formats: TATA's graphs, REPETITA's networks, DSPBench's measurements.

Every reader takes a path and returns applications or clusters. An invalid file is rejected in one line that names the
file, the location in it, the actual and the expected value.
"""
