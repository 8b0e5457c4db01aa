"""The verifier: plans jobs from rows and uses, runs them in workers, judges what they compute, keeps the evidence."""
