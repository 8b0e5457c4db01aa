"""Fuzzing of every parser that reads what a pull request, a user or another tool wrote."""
