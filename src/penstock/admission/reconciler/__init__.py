"""Run the applications of a book on Spark.

Every path of every admitted application is a run of its own, on the part of the cluster that the path uses, with its
own checkpoints. The runs of one application share its sources through split logs; all runs share the emulated machines.
The reconciler has no other input than the book: to admit, release, fail or restore, change the book.
"""
