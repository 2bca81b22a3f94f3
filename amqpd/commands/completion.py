"""`amqpd completion`: what a shell needs to complete commands, options and their values.

What comes in: which shell. What goes out: its script, for the shell's start-up file.
Rules: the script asks `amqpd` itself at each Tab, so it is as new as the program.
Not here: what there is to complete (`amqpd/__main__.py`).
"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_AMQPD_COMPLETE"
"""the environment variable by which click is asked"""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script with which SHELL completes amqpd's commands and options.

    \b
    Examples:
      amqpd completion bash >> ~/.bashrc
      amqpd completion zsh >> ~/.zshrc
      amqpd completion fish > ~/.config/fish/completions/amqpd.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None  # click has these three
    click.echo(kind(context.find_root().command, {}, "amqpd", VARIABLE).source())
