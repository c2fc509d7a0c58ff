"""Which kernels an iteration of DER spends its time in, by ncu.

    cuda_profile.py --bench PATH/der_bench [--rows 10] [--options "OPTIONS OF der_bench der"]

Runs one iteration launch by launch, so kernels do not overlap here and their sum is more than an
iteration takes. Prints a Markdown table: kernels of the same name and of one pass of cuDNN together,
the longest first, the rest as one row.
"""
import argparse
import collections
import csv
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

METRIC = "gpu__time_duration.sum"
PASSES = [("wgrad", "gradient of weights"), ("dgrad", "gradient of data"), ("bprop", "gradient of data"),
          ("fprop", "forward"), ("cudnn_generated", "forward or gradient, compiled")]


def kind_of(name):
    """What a kernel is called in the table."""
    own = re.search(r"(\w+)_kernel\b", name)
    if own and "cudnn" not in name:
        return own.group(1).replace("_", " ")
    for word, what in PASSES:
        if word in name:
            return f"cuDNN, {what}"
    if re.search(r"gemm|cublas|splitK", name, re.IGNORECASE):
        return "cuBLASLt"
    if "cudnn" in name:
        return "cuDNN, other"
    return re.sub(r"[<(].*", "", name)[:60]


def profile(command, log):
    if not shutil.which("ncu"):
        sys.exit("cuda_profile: there is no ncu in PATH; it comes with the CUDA toolkit")
    ncu = ["ncu", "--csv", "--log-file", log, "--metrics", METRIC]
    done = subprocess.run(ncu + command, input="run 1\nquit\n", text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"cuda_profile: ncu ended with {done.returncode}: {done.stderr or done.stdout}")


def read(log):
    """Microseconds and launches of every kind."""
    times, launches = collections.Counter(), collections.Counter()
    lines = [line for line in pathlib.Path(log).read_text().splitlines() if line.startswith('"')]
    for row in csv.DictReader(lines):
        if row["Metric Name"] != METRIC:
            continue
        scale = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "nsecond": 1e-3, "usecond": 1.0,
                 "msecond": 1e3}[row["Metric Unit"]]
        kind = kind_of(row["Kernel Name"])
        times[kind] += scale * float(row["Metric Value"].replace(",", ""))
        launches[kind] += 1
    return times, launches


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", required=True)
    parser.add_argument("--rows", type=int, default=10)
    parser.add_argument("--options", default="", help="more options of der_bench der")
    args = parser.parse_args()
    options = args.options.split()
    command = [args.bench, "der", "--backend", "cuda", "--precision", "bf16", *options]
    with tempfile.TemporaryDirectory() as folder:
        log = f"{folder}/ncu.csv"
        profile(command, log)
        times, launches = read(log)
    if not times:
        sys.exit("cuda_profile: ncu has seen no kernel")
    total = sum(times.values())
    print(f"`der_bench der {' '.join(options)}`: {sum(launches.values())} kernels, {total:.0f} us\n")
    print("| kernels | launches | us | share |\n|---|--:|--:|--:|")
    longest = times.most_common(args.rows)
    for kind, us in longest:
        print(f"| {kind} | {launches[kind]} | {us:.0f} | {100 * us / total:.0f} % |")
    rest = total - sum(us for _, us in longest)
    n_rest = sum(launches.values()) - sum(launches[kind] for kind, _ in longest)
    if n_rest:
        print(f"| all others | {n_rest} | {rest:.0f} | {100 * rest / total:.0f} % |")


if __name__ == "__main__":
    main()
