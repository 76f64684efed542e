"""Readers for other people's file formats: TATA's graphs, REPETITA's networks, DSPBench's measurements.

Every reader takes a path and answers with applications or clusters; a file that is not what it should be is refused
in one line that names the file, the place in it, what was found there and what was expected.
"""
