"""The figures of docs/performance.md: python -m benchmarks. No test times anything."""
