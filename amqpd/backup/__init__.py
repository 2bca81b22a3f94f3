"""Backup of a data directory, of a running broker or a stopped one, and its restore.

What comes in: a data directory and a new folder. What goes out: a folder with a copy of the journal, a copy of the
metadata that is not older, and a manifest that is written last; and, from such a folder, a data directory.
Rules: 1. Without its manifest a folder is no backup. 2. A backup changes nothing of what it copies. 3. A restore
deletes nothing, and checks everything before it moves anything.
Not here: the audit log, which is copied as any folder of files (docs/backup.md), the command line
(`commands/backup.py`).
"""
