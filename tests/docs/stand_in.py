#!/usr/bin/python3
"""Takes the place of a program that the documents call, where a test cannot call it as it stands.

It is called under the name of that program. `der` itself runs, on data that were drawn and with fewer epochs; what
takes minutes to hours (whole builds, all tests, benchmarks) is looked up instead: targets, presets, scripts and their
flags must exist. Every difference is noted in the file DER_DOCS_NOTES, which the list in docs/TESTING.md comes from.
"""
import json
import os
import re
import subprocess
import sys

ROOT = os.environ["DER_DOCS_ROOT"]
BUILD = os.environ["DER_DOCS_BUILD"]  # folder of the build under test

# Targets of make that are not run here, and who runs them.
TARGETS = {"all": "`make test` builds it", "test": "is what runs this test", "test-slow": "is run by hand",
           "demo": "a short one is run by `tests/report/t0303-demo.sh`, the whole by `make test-slow`",
           "bench": "is run by hand", "gpu-check": "is run by hand, on a GPU", "format": "`make test` checks the format",
           "lint": "is run by hand"}
# Last of several settings counts, so these are put behind those of the documents.
SHORT = ["--set", "epochs=1", "--set", "classifier_epochs=1", "--set", "width=0.05", "--set", "batch=32", "--set",
         "test_batch=32", "--threads", "1"]
SHORT_LESSON = ["--epochs", "1", "--classifier-epochs", "1", "--width", "0.25", "--image-size", "16", "--batch", "32",
                "--threads", "1"]


def refuse(why):
    sys.exit(f"stand_in: {why}")


def note(text):
    with open(os.environ["DER_DOCS_NOTES"], "a", encoding="utf-8") as file:
        file.write(text + "\n")


def become(program, *arguments):
    os.execv(program, [program, *arguments])


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def flag(arguments, name):
    """The value behind --name, or None."""
    return arguments[arguments.index(name) + 1] if name in arguments[:-1] else None


# ---- der -------------------------------------------------------------------------------------------


def version_line(key):
    """What `der --version` says behind a word."""
    text = subprocess.run([os.environ["DER"], "--version"], check=True, capture_output=True, text=True).stdout
    return next(line for line in text.split("\n") if line.strip().startswith(key))


def on_some_device(arguments):
    if flag(arguments, "--device") != "cuda":
        return arguments
    note("GPU: on the CPU where there is none")
    if "cuda" in version_line("back ends") and os.path.exists("/dev/nvidia0"):
        return arguments
    kept = []
    for before, argument in zip([""] + arguments, arguments):
        kept.append({"--device": "cpu", "--precision": "f32"}.get(before, argument))
    return kept


def fetch(arguments):
    if "--list" in arguments:
        return arguments
    name, folder = arguments[2:4]
    if name == "cifar100":
        note("network: from a server on this machine, which has drawn images in the layout of the data set")
        if "not built in" not in version_line("downloads"):
            with open(os.environ["DER_DOCS_SERVER"]) as file:
                return arguments + file.read().split()
    else:
        note("network: drawn images in the layout of the data set")
    become("/bin/cp", "-r", os.path.join(os.environ["DER_DOCS_DATA"], name), folder)


def train(arguments):
    note("shortened")
    if "--resume" in arguments and "--data" not in arguments:
        return arguments + ["--threads", "1", "--max-steps", "3"]  # as it was begun below
    shorter = ["--set", "per_class=12", "--set", "hard_epoch=0"]
    if "--target-params" in arguments:
        shorter += ["--target-params", "2k"]
    if "--max-steps" not in arguments:
        shorter += ["--max-steps", "3"]
    return arguments + SHORT + shorter


def reproduce(arguments):
    if "--dry-run" in arguments:
        return arguments
    note("shortened")
    return arguments + SHORT + ["--orders", "1"]


def learn(arguments):
    note("shortened")
    return arguments + SHORT_LESSON


def der(arguments):
    if "CIFAR" in arguments and "get" not in arguments:
        note("CIFAR: drawn images in its layout")
    adapt = {"train": train, "reproduce": reproduce, "learn": learn}.get(arguments[0] if arguments else "")
    if arguments[:2] == ["data", "get"]:
        adapt = fetch
    arguments = on_some_device(arguments)
    become(os.environ["DER"], *(adapt(arguments) if adapt else arguments))


# ---- what is looked up ------------------------------------------------------------------------------


def make(arguments):
    if arguments[:1] == ["-C"]:
        become("/usr/bin/make", *arguments)
    targets = [a for a in arguments if "=" not in a] or ["all"]
    for target in targets:
        if target == "install":
            note("installs the build under test")
            prefix = next((a.split("=", 1)[1] for a in arguments if a.startswith("PREFIX=")), None)
            become("/usr/bin/cmake", "--install", BUILD, "--prefix", prefix or refuse("make install wants a PREFIX here"))
        if target not in TARGETS:
            refuse(f"who runs 'make {target}'?")
        subprocess.run(["/usr/bin/make", "-n", "-C", ROOT, target], check=True, stdout=subprocess.DEVNULL)
        note(f"looked up; {TARGETS[target]}")


def check_preset(arguments, kind):
    known = [preset["name"] for preset in json.loads(read("CMakePresets.json"))[kind]]
    if flag(arguments, "--preset") not in known:
        refuse(f"there is no preset '{flag(arguments, '--preset')}' in {kind}")


def cmake(arguments):
    if "--preset" in arguments:
        check_preset(arguments, "buildPresets" if "--build" in arguments else "configurePresets")
        note("looked up; `make test` builds it")
    elif arguments[:2] == ["--install", "build"]:
        note("installs the build under test")
        become("/usr/bin/cmake", "--install", BUILD, *arguments[2:])
    else:
        become("/usr/bin/cmake", *arguments)


def ctest(arguments):
    if "--preset" in arguments:
        check_preset(arguments, "testPresets")
    label = (flag(arguments, "-L") or "").strip("^$")
    folders = [os.path.join(ROOT, top, label) for top in ("src", "tests")]
    if label and label != "slow" and not any(map(os.path.isdir, folders)):
        refuse(f"there is no group '{label}'")
    note("looked up; `make test` runs them" if label != "cuda" else "looked up; GPU: by hand")


def by_python():
    """Was it called as `python3 SCRIPT`? Started by its own first line, its name has no folder of its own choosing."""
    with open("/proc/self/cmdline", "rb") as file:
        interpreter = file.read().split(b"\0")[0]
    return b"/" not in interpreter


def script(path, arguments):
    """A script of bench/ or tools/: it, and the flags that it is given."""
    stem = os.path.splitext(path)[0]
    texts = [read(stem + end) for end in (".sh", ".py") if os.path.exists(os.path.join(ROOT, stem + end))]
    if not os.access(os.path.join(ROOT, path), os.X_OK) and not by_python():
        refuse(f"{path} is not there, or cannot be run")
    for argument in arguments:
        if argument.startswith("--") and not any(argument in text for text in texts):
            refuse(f"{path} does not know {argument}")
    note("looked up; is run by hand")


def built(path, arguments):
    """A program of another build than the one under test: build/PRESET/KIND/NAME."""
    _, preset, kind, name = path.split("/")
    if kind == "tests":
        note("that of the release build")
        become(os.path.join(BUILD, "tests", name), *arguments)
    places = {"fuzz": f"tests/fuzz/{name}.c", "bench": "bench/CMakeLists.txt"}
    if kind not in places or not re.search(rf"\b{name}\b" if kind == "bench" else "", read(places[kind])):
        refuse(f"nothing builds {path}")
    note("looked up; is run by hand" + (", on a GPU" if preset == "cuda" else ""))


def main():
    path, arguments = os.path.relpath(os.path.abspath(sys.argv[0]), os.environ["DER_DOCS_HOME"]), sys.argv[1:]
    name = os.path.basename(path)
    if name == "der":
        der(arguments)
    elif path.startswith("build/"):
        built(path, arguments)
    elif path.startswith(("bench/", "tools/")):
        script(path, arguments)
    elif name == "compute-sanitizer":
        note("looked up; is run by hand, on a GPU")
    else:
        {"make": make, "cmake": cmake, "ctest": ctest}[name](arguments)


main()
