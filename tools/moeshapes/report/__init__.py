"""What a pull request changes, what proves it, how serving fares: for a comment, a job summary and a browser."""
