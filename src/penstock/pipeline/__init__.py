"""PySpark jobs and the session they run in."""
