"""The steps of metadata.db's format, one file each in `versions/`; run by `database.py` when it is opened."""
