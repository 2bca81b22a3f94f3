"""amqpd: an AMQP 0-9-1 broker."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("amqpd")
except PackageNotFoundError:  # run from a checkout that is not installed
    __version__ = "0+checkout"
