"""What the exact policy is made of: programs of whole numbers for rate and traffic, enumeration for the rest."""
