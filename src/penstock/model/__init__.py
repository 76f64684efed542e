"""The domain: applications, clusters, placements, and their array forms."""
