"""Definitions: everything that exists in a broker as one file, in RabbitMQ's JSON format.

What comes in: the text of a file; a topology. What goes out: a file's text from a topology; from a file and a
topology what would have to change, in records and in words.
Rules: 1. Pure: files, stores and passwords in clear text are the command's (`commands/definitions.py`). 2. Two
exports of equal topologies are equal byte for byte, and importing an export changes nothing.
Not here: what the records mean (`vocabulary/records.py`).

Source: https://www.rabbitmq.com/docs/definitions; rabbit_definitions.erl; files written by RabbitMQ 3.10.8.
"""
