"""What this machine has of what verification needs, what is missing, and how to get it."""
