"""The parts of gen_golden.py: file format, single operations, networks."""
