"""Benchmarks that compare two ways of doing the same work in one run."""
