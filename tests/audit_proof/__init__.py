"""What the audit log promises, shown on a real broker and the real pipeline: minutes each, run by `make
audit-proof`."""
