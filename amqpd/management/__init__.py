"""What an operator can do and see: queues, messages, connections, orphans, damage; and the control socket.

May import: `amqpd.node` and what is below it. Shell.
Not here: the command line (`amqpd.commands`), the protocol.
"""
