"""The book of a cluster: admission, sharing, and every change to it.

`admit` admits an application, or rejects it and suggests what would help. `release`, `reprioritise` and `replan` change
bookings; `fail`, `restore` and `set_capacity` record changes of the cluster. Each returns a new book and leaves its
argument unchanged. `BookFile` stores a book in a file that several processes may change.
"""
