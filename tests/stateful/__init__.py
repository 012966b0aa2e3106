"""Stateful tests: long mixtures of every verb on a real server, each reply foretold by a reference model."""
