#!/usr/bin/python3
"""Runs every command of the documents, and reports in TAP.

    run_docs.py [--list TESTING.md] DOCUMENT...

Each document is followed from its first command to its last in a folder of its own, as a reader would. What cannot be
run as it stands is run by tests/docs/stand_in.py, and has to stand in the table of TESTING.md: that table is made by
this program (DER_UPDATE=1 writes it), and a difference is a failure. C programs are compiled with all warnings, pieces
of C inside a function; commands in the text between the blocks must name commands, flags, targets and files that exist.
The environment variable DER is the program under test.
"""
import argparse
import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import documents  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "docs"
LIMIT_S = 200  # for one command
N_AT_ONCE = 2  # documents
BEGIN, END = "<!-- commands: made by tests/docs/run_docs.py -->\n", "<!-- /commands -->\n"
STRICT = ["cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", str(ROOT / "include")]
# What pieces of C in the documents may take for granted.
PIECE = """#include <der/der.h>
void my_log(void *user, enum der_log_level level, const char *text);
void piece(struct der_settings *settings);
void piece(struct der_settings *settings)
{{
    (void)settings;
    {{
{}
    }}
}}
"""


class Verdicts:
    """What was found, in order; printed at the end, since documents are followed two at a time."""

    def __init__(self):
        self.all = []  # (result, name, lines that say why)

    def report(self, name, holds, why=""):
        lines = [] if holds else str(why).rstrip("\n").split("\n")
        self.all.append(("ok" if holds else "not ok", name.replace("#", ""), lines))

    def skip(self, name, why):
        self.all.append(("ok", f"{name} # SKIP {why}", []))

    def print(self):
        for number, (result, name, lines) in enumerate(self.all, 1):
            print(f"{result} {number} - {name}")
            for line in lines:
                print(f"# {line}")
        print(f"1..{len(self.all)}")
        return all(result == "ok" for result, _, _ in self.all)


# ---- data in place of what is published -------------------------------------------------------------


def picture(chance, label, n_bytes):
    """Noise whose first bytes tell the class."""
    return bytes([label * 2 + 20] * (n_bytes // 2)) + chance.randbytes(n_bytes - n_bytes // 2)


def make_cifar(folder, n_train=2, n_test=1):
    folder.mkdir(parents=True)
    chance = random.Random(1)
    (folder / "fine_label_names.txt").write_text("".join(f"class_{i}\n" for i in range(100)))
    (folder / "coarse_label_names.txt").write_text("".join(f"group_{i}\n" for i in range(20)))
    for split, n in (("train", n_train), ("test", n_test)):
        records = [bytes([label // 5, label]) + picture(chance, label, 3072) for _ in range(n) for label in range(100)]
        (folder / f"{split}.bin").write_bytes(b"".join(records))


def make_fashion(folder, n_train=20, n_test=5):
    folder.mkdir(parents=True)
    chance = random.Random(2)
    for split, n in (("train", n_train), ("t10k", n_test)):
        labels = bytes(range(10)) * n
        head = (2051).to_bytes(4, "big") + len(labels).to_bytes(4, "big") + 2 * (28).to_bytes(4, "big")
        pixels = b"".join(picture(chance, 10 * label, 784) for label in labels)
        (folder / f"{split}-images-idx3-ubyte").write_bytes(head + pixels)
        head = (2049).to_bytes(4, "big") + len(labels).to_bytes(4, "big")
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(head + labels)


class Fixtures:
    """Data sets, and a server that has CIFAR-100; ends with `with`."""

    def __init__(self, folder):
        self.folder = folder
        make_fashion(folder / "data" / "fashion-mnist")
        make_cifar(folder / "data" / "cifar100" / "cifar-100-binary")
        archive = folder / "www" / "cifar.tar.gz"
        archive.parent.mkdir()
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(folder / "data" / "cifar100" / "cifar-100-binary", "cifar-100-binary")
        self.sum = hashlib.sha256(archive.read_bytes()).hexdigest()

    def __enter__(self):
        self.server = subprocess.Popen([sys.executable, ROOT / "tests/support/web_server.py", self.folder / "www"],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        port = self.server.stdout.readline().strip()
        (self.folder / "server").write_text(
            f"--url http://127.0.0.1:{port}/plain/cifar.tar.gz --checksum sha256:{self.sum}")
        return self

    def __exit__(self, *_):
        self.server.communicate("")


# ---- one document ------------------------------------------------------------------------------------


class Reader:
    """Someone who follows one document in a folder that looks like the project's after `make`."""

    def __init__(self, fixtures, folder):
        self.folder, self.home, self.notes = folder, folder / "home", folder / "notes"
        self.home.mkdir(parents=True)
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        for name in ("der", "make", "cmake", "ctest", "compute-sanitizer"):
            (bin_folder / name).symlink_to(HERE / "stand_in.py")
        if Path("/usr/bin/python3").exists():
            (bin_folder / "python3").symlink_to("/usr/bin/python3")
        self.stand_in("build/der")
        for script in list((ROOT / "bench").glob("*.sh")) + list((ROOT / "tools").glob("*.sh")) + \
                list((ROOT / "bench").glob("*.py")):
            self.stand_in(script.relative_to(ROOT))
        (self.home / "tests").symlink_to(ROOT / "tests")
        shutil.copytree(ROOT / "examples", self.home / "examples")
        self.environment = folder / "environment"
        variables = {"PATH": f"{bin_folder}:{os.environ['PATH']}", "DER": os.environ["DER"],
                     "DER_DOCS_ROOT": str(ROOT), "DER_DOCS_BUILD": str(Path(os.environ["DER"]).parent),
                     "DER_DOCS_HOME": str(self.home), "DER_DOCS_NOTES": str(self.notes),
                     "DER_DOCS_DATA": str(fixtures.folder / "data"), "DER_DOCS_SERVER": str(fixtures.folder / "server"),
                     "PYTHONDONTWRITEBYTECODE": "1", "OMP_WAIT_POLICY": "passive"}
        self.variables = {**os.environ, **variables}
        self.environment.write_text("")

    def stand_in(self, path):
        place = self.home / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            place.symlink_to(HERE / "stand_in.py")

    def run(self, command):
        """Status, output and notes of one command; what it exports and where it goes is kept for the next."""
        for path in re.findall(r"\bbuild/\w+/\w+/\w+", command):
            self.stand_in(path)
        self.notes.write_text("")
        text = command.replace("/opt/der", str(self.folder / "opt"))
        text = text.replace("/usr/share/datasets", self.variables["DER_DOCS_DATA"])  # a package that need not be there
        script = f". {self.environment}\n{text}\nstatus=$?\ndeclare -p | grep -v '^declare -[a-z]*r' >{self.environment}\n" \
                 f"echo \"cd '$PWD'\" >>{self.environment}\nexit $status\n"
        with subprocess.Popen(["bash", "-c", script], cwd=self.home, env=self.variables, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True) as process:
            try:
                output = process.communicate(timeout=LIMIT_S)[0].decode(errors="replace")
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output = f"took more than {LIMIT_S} s"
        status = process.returncode
        notes = list(dict.fromkeys(self.notes.read_text(encoding="utf-8").split("\n")[:-1]))
        return status, output, notes


def check_c(verdicts, where, block):
    if "int main(" in block.text:
        if not block.name:
            verdicts.report(f"{where}: a whole program", False, "it has no file name, so no command can build it")
            return
        source, what = block.text, "the program has no warnings"
    else:
        source, what = PIECE.format(re.sub(r"^\.\.\.$", "", block.text, flags=re.M)), "the piece of C is C"
    flags = [] if block.name else ["-Wno-unused-variable", "-Wno-unused-but-set-variable"]
    done = subprocess.run([*STRICT, *flags, "-fsyntax-only", "-x", "c", "-"], input=source, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    verdicts.report(f"{where}: {what}", done.returncode == 0, done.stdout)


def follow(verdicts, reader, name, blocks):
    """Runs the commands of a document; returns what was not run as it stands: (command, notes) of each."""
    listed, output = [], ""
    prepare = HERE / (Path(name).stem + ".before.sh")
    if prepare.exists():
        status, output, _ = reader.run(f". {prepare}")
        verdicts.report(f"{name}: what its commands begin with", status == 0, output)
    used = [block.name for block in blocks if block.name]
    for block in blocks:
        where = f"{name}:{block.line}"
        if block.language == "c":
            check_c(verdicts, where, block)
        if block.name:
            (reader.home / block.name).write_text(block.text)
        if block.language != "sh":
            continue
        for command in documents.commands_of(block):
            status, output, notes = reader.run(command.text)
            verdicts.report(f"{name}:{command.line}: {command.shown}", status == 0, f"exit status {status}\n{output[-3000:]}")
            used = [file for file in used if file not in command.text]
            if notes:
                listed.append((command.shown, "; ".join(notes)))
    verdicts.report(f"{name}: every file that it shows is used", not used, used)
    return listed


def missing_for(text):
    """The package of Python that a document needs and the machine has not."""
    for sign, module, package in (("make_photos.py", "PIL", "python3-pil"), ("import numpy", "numpy", "python3-numpy")):
        if sign in text and subprocess.run(["/usr/bin/python3", "-c", f"import {module}"], capture_output=True).returncode:
            return package
    return None


# ---- commands in the text ----------------------------------------------------------------------------


def help_of(words):
    done = subprocess.run([os.environ["DER"], *words, "--help"], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def fault_of(code):
    """What is wrong with a command between backticks; empty: nothing, or it is none."""
    words = re.sub(r"^[A-Z_]+=\S+ ", "", code).split() or [""]
    if words[0] == "make" and len(words) > 1 and re.fullmatch("[a-z-]+", words[1]):
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
        return "" if words[1] in targets else f"there is no target {words[1]}"
    if re.match(r"(bench|tools|tests|cli|src|cmake|examples)/[\w./-]+\.\w+$", words[0]) and "*" not in code:
        return "" if (ROOT / words[0]).exists() else f"there is no {words[0]}"
    if words[0] in ("der", "build/der") and len(words) > 1 and re.fullmatch("[a-z]+", words[1]):
        command = words[1:3] if words[1] == "data" and len(words) > 2 else words[1:2]
        if command[0] in ("help", "version", "nets"):
            return ""
        text = help_of(command)
        if text is None:
            return f"there is no command {' '.join(command)}"
        unknown = [w for w in re.findall(r"--[a-z][a-z-]*", code) if not re.search(rf"(?<![\w-]){w}(?![\w-])", text)]
        return f"{' '.join(command)} does not know {unknown[0]}" if unknown else ""
    return ""


def check_text(verdicts, name, path):
    faults = [f"line {line}: `{code}`: {fault_of(code)}" for line, code in documents.inline_code(path) if fault_of(code)]
    verdicts.report(f"{name}: commands in the text name what exists", not faults, "\n".join(faults))


def follow_path(path, fixtures, folder):
    """All verdicts about a document, and its rows of the list; None where it was left out."""
    verdicts = Verdicts()
    try:
        blocks = documents.blocks_of(path)
        missing = missing_for("".join(block.text for block in blocks))
        if missing:
            verdicts.skip(path.name, f"no {missing}")
            return verdicts, None
        rows = follow(verdicts, Reader(fixtures, folder), path.name, blocks)
        check_text(verdicts, path.name, path)
    except documents.Fault as fault:
        verdicts.report(f"{path.name}: its blocks can be told apart", False, fault)
        rows = []
    return verdicts, rows


# ---- the list ------------------------------------------------------------------------------------------


def table_of(listed):
    def cell(text):
        return text.replace("|", "\\|")

    lines = ["| Document | Command | Instead |", "|---|---|---|"]
    lines += [f"| {name} | `{cell(command)}` | {cell(notes)} |" for name, command, notes in listed]
    return "\n".join(lines) + "\n"


def check_list(verdicts, path, listed):
    text = path.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    new = table_of(listed)
    if os.environ.get("DER_UPDATE") and old != new:
        path.write_text(before + BEGIN + new + END + after, encoding="utf-8")
        old = new
    have, want = set(old.split("\n")), set(new.split("\n"))
    why = "\n".join([f"not listed: {line}" for line in sorted(want - have)] +
                    [f"listed, but not met: {line}" for line in sorted(have - want)] + ["DER_UPDATE=1 renews the list"])
    verdicts.report(f"{path.name} lists what is not run as it stands, and nothing else", old == new, why)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", type=Path)
    parser.add_argument("documents", nargs="+", type=Path)
    options = parser.parse_args()
    verdicts, listed = Verdicts(), []
    with tempfile.TemporaryDirectory() as folder, Fixtures(Path(folder) / "fixtures") as fixtures:
        with ThreadPoolExecutor(N_AT_ONCE) as pool:
            results = list(pool.map(lambda path: follow_path(path, fixtures, Path(folder) / path.name), options.documents))
    for path, (found, rows) in zip(options.documents, results):
        verdicts.all += found.all
        if rows is None:
            options.list = None  # it would lack this document
        else:
            listed += [(path.name, *row) for row in rows]
    if options.list:
        check_list(verdicts, options.list, listed)
    sys.exit(not verdicts.print())


main()
