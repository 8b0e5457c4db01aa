"""The verifier's own check: backends that lie in one way each must be caught, the honest one never."""
