"""Backends: what runs a row's kernels. A backend computes; it never poisons, captures or judges."""
