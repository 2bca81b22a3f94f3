"""Routes, one file for each kind of thing: what is asked for, who may, and which use case answers."""
