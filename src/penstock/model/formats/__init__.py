"""Readers for other people's file formats."""
