"""The report's page: what is read from the tables (`tables.py`, `sections.py`, `activity.py`), drawn (`charts.py`),
written (`words.py`, `page.html.j2`, `page.css`).

What comes in: a folder of other jobs' tables. What goes out: one HTML page that needs nothing else.
Rules: bounded to read: 50 rows of a table, 500 points of a line.
Not here: the command (`report.py`).
"""
