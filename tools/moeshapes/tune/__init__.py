"""Tuning the portable kernels: candidates from a declared space, screened, and the fastest that is proven is kept."""
