"""The broker that the end-to-end tests of the bench run against: the same one that the client tests use."""

from tests.clients.conftest import broker_url

__all__ = ["broker_url"]
