"""The gate: what blocks a pull request. No torch here, and no pandas."""
