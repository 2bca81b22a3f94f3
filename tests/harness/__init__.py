"""What tests of the pure modules share: no sockets, no disk, no clock."""
