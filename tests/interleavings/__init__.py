"""Scenarios of two or three actors, each run in every order of their steps."""
