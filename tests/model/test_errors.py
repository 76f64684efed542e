"""Values in error messages."""

from penstock.model.errors import shown


def test_shows_values_in_a_limited_length() -> None:
    assert len(shown("x" * 1000)) == 200
    assert shown("short") == "'short'"
