#!/usr/bin/env python3
"""complete.py bash|zsh SCRIPT: what an interactive shell makes of lines when Tab is pressed.

Starts the shell on a terminal of its own, has it read the completion SCRIPT, types each line of standard input and a
Tab, and prints the line that the shell then has."""
import os
import pty
import select
import sys
import tempfile
import time

PATIENCE = 60  # seconds for one line; a sanitized program starts slowly

SETUP = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        "source {script}\n"
        "bind 'set bell-style none'\n"
        "bind -x '\"\\C-o\": printf \"%s\\n\" \"$READLINE_LINE\" >{work}/part; mv {work}/part {work}/line'\n",
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        "unsetopt beep\n"
        "autoload -Uz compinit && compinit -D -u\n"
        "source {script}\n"
        "show() {{ print -r -- \"$BUFFER\" >{work}/part; mv {work}/part {work}/line }}\n"
        "zle -N show; bindkey '^O' show\n",
    ),
}


def drain(terminal):
    """A shell that cannot write would wait for ever."""
    while select.select([terminal], [], [], 0)[0]:
        os.read(terminal, 65536)


def wait_for(path, terminal):
    end = time.monotonic() + PATIENCE
    while not os.path.exists(path):
        if time.monotonic() > end:
            sys.exit(f"complete.py: no answer in {PATIENCE} s")
        drain(terminal)
        time.sleep(0.01)


def main():
    shell, script = sys.argv[1:]
    lines = sys.stdin.read().splitlines()
    argv, setup = SETUP[shell]
    with tempfile.TemporaryDirectory() as work:
        child, terminal = pty.fork()
        if child == 0:
            os.environ["TERM"] = "xterm"
            os.execvp(argv[0], argv)
        # A line at a time: what comes before the prompt is there may be read by the terminal's own editor.
        for command in setup.format(script=script, work=work).splitlines() + [f": >{work}/ready"]:
            os.write(terminal, command.encode() + b"\n")
        wait_for(f"{work}/ready", terminal)
        for line in lines:
            os.write(terminal, line.encode() + b"\t\x0f")  # Tab, then the key that shows the line
            wait_for(f"{work}/line", terminal)
            with open(f"{work}/line") as answer:
                print(answer.read().rstrip("\n"))
            os.remove(f"{work}/line")
            os.write(terminal, b"\x15")  # an empty line again
        os.write(terminal, b"exit\n")
        end = time.monotonic() + PATIENCE
        while os.waitpid(child, os.WNOHANG)[0] == 0 and time.monotonic() < end:
            try:
                drain(terminal)
            except OSError:  # it has closed its side
                pass
            time.sleep(0.01)


if __name__ == "__main__":
    main()
