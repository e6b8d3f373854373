"""The document and the socket behind `ascend-agent status`."""
