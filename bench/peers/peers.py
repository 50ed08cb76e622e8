#!/usr/bin/env python3
"""Inference time of Eggine's cpu device and its peers, side by side in one run.

    peers.py --eggine PATH_OF_BINARY [--models FOLDER] [--rounds 5] [--repeats 5] [--threads 1] [--out FOLDER]

Every round runs every engine once on every model, in turn, each in a fresh process, so that drift of
the machine hits all alike; the table shows medians over all samples and the ratio to tract. Writes
`samples.json` (everything) and `table.md` into the output folder. An engine that cannot run is a row
that says so. See README.md for the setup.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def eggine(binary, model, case, threads, repeats, folder):
    """Compiles once per run (budget 0, verified) and measures with `eggine bench`."""
    engine = os.path.join(folder, os.path.basename(model) + ".engine")
    seconds = None
    if not os.path.exists(engine):
        command = [binary, "compile", model, "-o", engine, "--budget", "0", "--shapes-from", case, "--json"]
        report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        seconds = report["phases"]["total_s"]
    bench = [binary, "bench", engine, "--threads", str(threads), "--repeats", str(repeats), "--json"]
    bench = json.loads(subprocess.run(bench, check=True, capture_output=True, text=True).stdout)
    compared = [binary, "compare", engine, "--case", case, "--json"]
    compared = json.loads(subprocess.run(compared, capture_output=True, text=True).stdout)
    res = {"samples_ms": [ns / 1e6 for ns in bench["samples_ns"]], "kernels": bench["n_launches"]}
    res["error"] = max(output["max_relative"] for output in compared["outputs"])
    return res if seconds is None else {**res, "load_s": seconds}


def peer(name, model, case, threads, repeats):
    command = [sys.executable, os.path.join(HERE, "worker.py"), name, model, case, str(threads), str(repeats)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:160]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def merge(rows):
    failed = [row["failed"] for row in rows if "failed" in row]
    if failed:
        return {"failed": failed[0]}
    res = {"samples_ms": [ms for row in rows for ms in row["samples_ms"]], "error": max(row["error"] for row in rows)}
    for key in ("load_s", "kernels"):
        known = [row[key] for row in rows if key in row]
        res[key] = statistics.median(known) if known else None
    return res


def table(results, info):
    lines = [f"{info['cpu']}, {info['threads']} thread(s), {info['rounds']} rounds × {info['repeats']} repeats", ""]
    lines += ["| model | engine | median ms | min ms | × tract | compile or load s | kernels | max error |", "|---|---|---|---|---|---|---|---|"]
    for model, engines in results.items():
        tract = engines.get("tract", {}).get("samples_ms")
        for engine, row in engines.items():
            if "failed" in row:
                lines.append(f"| {model} | {engine} | failed: {row['failed']} | | | | | |")
                continue
            median = statistics.median(row["samples_ms"])
            ratio = f"{median / statistics.median(tract):.2f}" if tract else ""
            load = "" if row["load_s"] is None else f"{row['load_s']:.2f}"
            kernels = "" if row["kernels"] is None else f"{row['kernels']:.0f}"
            lines.append(
                f"| {model} | {engine} | {median:.1f} | {min(row['samples_ms']):.1f} | {ratio} | {load} | {kernels} | {row['error']:.1e} |"
            )
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--eggine", required=True)
    parser.add_argument("--models", default="target/models")
    parser.add_argument("--names", default="light_resnet50,light_squeezenet")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", default="target/peers")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    engines = ["eggine", "onnxruntime", "tract", "tinygrad"]
    names = args.names.split(",")
    rows = {name: {engine: [] for engine in engines} for name in names}
    for _ in range(args.rounds):
        for name in names:
            model, case = (os.path.join(args.models, name + end) for end in (".onnx", ".case0.npz"))
            for engine in engines:
                if engine == "eggine":
                    row = eggine(args.eggine, model, case, args.threads, args.repeats, args.out)
                else:
                    row = peer(engine, model, case, args.threads, args.repeats)
                rows[name][engine].append(row)
                print(name, engine, json.dumps(row)[:160], flush=True)
    results = {name: {engine: merge(samples) for engine, samples in by.items()} for name, by in rows.items()}
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.processor())
    info = {"cpu": cpu, "threads": args.threads, "rounds": args.rounds, "repeats": args.repeats}
    info["commit"] = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=HERE).stdout.strip()
    with open(os.path.join(args.out, "samples.json"), "w", encoding="utf-8") as file:
        json.dump({"info": info, "results": results}, file, indent=1)
    text = table(results, info)
    with open(os.path.join(args.out, "table.md"), "w", encoding="utf-8") as file:
        file.write(text)
    print(text)


if __name__ == "__main__":
    main()
