"""A plain model of our queues, and random commands that hold a whole node against it."""
