"""For spark-submit, which wants a file: the same as the command `amqpd-spark`."""

from amqpd_spark.__main__ import main

if __name__ == "__main__":
    main(prog_name="amqpd-spark")
