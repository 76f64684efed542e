"""The documentation is true: its examples run, its commands exist, its links lead somewhere."""
