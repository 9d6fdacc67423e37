"""Recorded sessions inside a tenth of what they need."""
