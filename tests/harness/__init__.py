"""Tests of the pure rooms: no sockets, no disk, no clock."""
