"""The stubs made from proto/: committed, no line by hand, compared with a fresh run in CI."""
