"""The control socket: how the command line reaches a running broker.

`socket.py` serves it, `commands.py` says which use case each command is, `answers.py` how one is answered,
`remote.py` sends the same commands over HTTP.
May import: the other packages of `amqpd.management`. Shell.
Not here: the commands as people type them (`amqpd.commands`).
"""
