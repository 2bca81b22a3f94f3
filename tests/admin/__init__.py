"""Tests of the management API."""
