"""Parts of the exact policy: integer programs for rate and traffic, enumeration for other objectives."""
