"""How fast it is, as ratios: ``python -m bench quick``, ``full`` or ``plot``; see ``bench/README.md``."""
