"""The subcommands of `amqpd`, one file each; `amqpd/__main__.py` imports the one that is asked for.

What comes in: `Settings`, as the context's object. What goes out: what people read, and exit codes.
Rules: 1. A click command or group in a file carries the name that `__main__.COMMANDS` gives. 2. What goes
wrong is raised as `StartupError` or, when a use case refuses, as click's exception with its sentence
(`metadata.refusals`): `__main__` prints it. 3. What is checked and done is in `amqpd/management/`.
Not here: options that belong to all commands (`__main__.py`).
"""
