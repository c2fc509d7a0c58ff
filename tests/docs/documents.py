"""What the documents tell their readers to type: blocks of Markdown and of the man page, and single commands.

A block is fenced and names its language. Those of `sh` are commands, one a line unless a line ends in a backslash or
opens a here-document. `c` and `python` may have a file name behind the language: that is the file the text says it is.
Everything else is to be read and not to be run.
"""
import re
from dataclasses import dataclass

LANGUAGES = {"sh", "c", "python", "cmake", "json", "text"}
RUN_BY_TESTS = r"(\$ |(build/)?der [a-z]|make\b|cmake |ctest )"  # how a line begins that belongs into a block of sh


class Fault(Exception):
    """Something about a document that its author has to mend."""


@dataclass
class Block:
    language: str
    name: str  # of a file, or empty
    line: int  # of the first line within
    text: str


@dataclass
class Command:
    line: int
    text: str  # as it is run
    shown: str  # as it is listed: without comment, in one line


def blocks_of_markdown(text):
    blocks, begin = [], None
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if begin is not None:
            if line == "```":
                language, name = begin[1]
                blocks.append(Block(language, name, begin[0] + 1, "\n".join(lines[begin[0]:number - 1]) + "\n"))
                begin = None
        elif line.startswith("```"):
            words = line[3:].split()
            if not words or words[0] not in LANGUAGES or len(words) > 2:
                raise Fault(f"line {number}: a block names its language ({', '.join(sorted(LANGUAGES))}) "
                            f"and at most a file, not '{line}'")
            begin = number, (words[0], words[1] if len(words) > 1 else "")
        elif line.startswith("    ") and (number == 1 or not lines[number - 2].strip()):
            raise Fault(f"line {number}: code stands between ```, not behind four spaces")
    if begin is not None:
        raise Fault(f"line {begin[0]}: the block has no end")
    for block in blocks:
        if block.language == "text" and re.search("^" + RUN_BY_TESTS, block.text, re.M):
            raise Fault(f"line {block.line}: a command stands in a block of sh")
    return blocks


def blocks_of_man_page(text):
    """The examples: what stands between .EX and .EE in the section EXAMPLES."""
    section = re.search(r'^\.SH EXAMPLES$(.*?)(?=^\.SH|\Z)', text, re.M | re.S)
    if not section:
        raise Fault("there is no section EXAMPLES")
    first = text[:section.start(1)].count("\n") + 1
    blocks = []
    for match in re.finditer(r"^\.EX\n(.*?)^\.EE$", section[1], re.M | re.S):
        line = first + section[1][:match.start(1)].count("\n")
        blocks.append(Block("sh", "", line, match[1].replace("\\-", "-").replace("\\e", "\\")))
    if not blocks:
        raise Fault("the section EXAMPLES has none")
    return blocks


def blocks_of(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return blocks_of_markdown(text) if str(path).endswith(".md") else blocks_of_man_page(text)


def commands_of(block):
    commands, kept, end_word = [], [], None
    for offset, line in enumerate(block.text.rstrip("\n").split("\n")):
        if not kept and (not line.strip() or line.lstrip().startswith("#")):
            continue
        if not kept:
            first = block.line + offset
        kept.append(line)
        here = re.search(r"<<-?\s*'?(\w+)'?", line) if end_word is None else None
        if here:
            end_word = here[1]
        elif end_word is not None and line.strip() == end_word:
            end_word = None
        if end_word is None and not line.endswith("\\"):
            text = "\n".join(kept)
            shown = " ".join(re.sub(r"\s+#\s.*$", "", part).rstrip("\\").strip() for part in kept)
            commands.append(Command(first, text, shown))
            kept = []
    if kept:
        raise Fault(f"line {first}: the command has no end")
    return commands


def inline_code(path):
    """What stands between backticks in the text around the blocks: (line, text) of each."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if not str(path).endswith(".md"):
        return []
    # Blocks become empty lines, so that lines keep their numbers.
    text = re.sub(r"^```.*?^```$", lambda m: "\n" * m[0].count("\n"), text, flags=re.M | re.S)
    return [(text[:m.start()].count("\n") + 1, " ".join(m[1].split())) for m in re.finditer(r"`([^`]+)`", text)]
