"""Lint: what is wrong with tuned rows that can be read. One small module a group of rules."""

from moeshapes.rules.lint import lint_row, lint_rows

__all__ = ["lint_row", "lint_rows"]
