"""The GPU bench kit; run.sh is its front door, README.md says what it does.

Order: what is here; every kernel family against the oracle; engines compiled, compared with reference
outputs; only then times. A check that cannot run is counted and named, a wrong result ends the run with
status 1 and no times. Without torch it needs the standard library alone.
"""

import argparse
import datetime
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

import make_models
import peers


class Kit:
    def __init__(self, args):
        self.args = args
        self.skipped = []
        self.failed = []
        self.started = time.monotonic()

    def say(self, text):
        print(f"[{time.monotonic() - self.started:6.1f} s] {text}", flush=True)

    def skip(self, what, why):
        self.skipped.append(f"{what}: {why}")
        self.say(f"skipped {what}: {why}")

    def fail(self, what, why):
        self.failed.append(f"{what}: {why}")
        self.say(f"WRONG {what}: {why}")

    def eggine(self, *arguments, ok=(0,)):
        """Runs the command; a status that is not expected ends the kit with its message."""
        command = [self.args.eggine, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.args.root)
        if done.returncode not in ok:
            message = (done.stderr or done.stdout).strip().splitlines()
            raise SystemExit(f"{' '.join(command)}\n  status {done.returncode}: {message[-1] if message else ''}")
        return done

    def seconds_left(self):
        return self.args.limit_s - (time.monotonic() - self.started)


def median_interval(samples, rounds=400, seed=0):
    """Median with the 95 % interval of its bootstrap."""
    generator = random.Random(seed)
    medians = sorted(
        statistics.median(generator.choices(samples, k=len(samples))) for _ in range(rounds)
    )
    return statistics.median(samples), medians[int(0.025 * rounds)], medians[int(0.975 * rounds)]


def correctness(kit, models, folder):
    """Everything that has to hold before a time means something. Returns the engines."""
    device = kit.args.device
    kit.skip("wgmma descriptor forms (K-major and MN-major)", "no kernel family emits wgmma yet")
    regions = kit.args.root / "codegen-ptx/tests/regions/all.gir"
    neighbours = 0 if kit.args.dry else 4
    done = kit.eggine("selftest", regions, "--device", device, "--neighbours", neighbours, "--json", ok=(0, 1))
    result = json.loads(done.stdout)
    kit.say(f"kernel families: {result['kernels']} of {result['n_regions']} regions, {len(result['wrong'])} wrong")
    for region, schedule, verdict in result["wrong"]:
        kit.fail(f"{region} {schedule}", verdict)
    if not kit.args.dry:
        kit.eggine("calibrate", "--device", device, "--evidence", folder / "evidence.sqlite")
        kit.say("calibrated: what is searched now is ranked with this device's constants")
    engines = []
    for model in models:
        engine = folder / f"{model.name}.engine"
        arguments = ["compile", model.onnx, "-o", engine, "--shapes-from", model.case, "--quiet"]
        arguments += ["--evidence", folder / "evidence.sqlite"]
        if not kit.args.dry:
            budget = max(10, min(60, (kit.seconds_left() - 150) / len(models)))
            arguments += ["--budget", f"{budget:.0f}s", "--target", kit.args.target]
        kit.eggine(*arguments, "--device", device)
        done = kit.eggine("compare", engine, "--case", model.case, "--device", device,
                          "--rel-tol", model.tolerance, ok=(0, 1))
        verdict = done.stdout.strip().splitlines()
        if done.returncode:
            kit.fail(model.name, verdict[0] if verdict else "differs")
        else:
            kit.say(f"{model.name}: compiled, {verdict[0] if verdict else 'agrees'}")
            engines.append((model, engine))
    return engines


def timing(kit, engines):
    """Interleaved rounds: every contestant of a model once a round, in an order that turns around."""
    device = kit.args.device
    results = []
    n_rounds, n_runs = (2, 2) if kit.args.dry else (8, 25)
    for model, engine in engines:
        contestants = {}

        def ours():
            done = kit.eggine("bench", engine, "--device", device, "--repeats", n_runs, "--json")
            return json.loads(done.stdout)["samples_ns"]

        contestants["eggine"] = ours
        for name, peer in peers.contestants(kit, model, n_runs).items():
            contestants[name] = peer
        samples = {name: [] for name in contestants}
        for at in range(n_rounds):
            order = list(contestants)
            for name in order if at % 2 == 0 else reversed(order):
                samples[name].extend(contestants[name]())
        row = {"model": model.name, "batch": model.batch, "samples_ns": samples, "median_ns": {}}
        for name, taken in samples.items():
            middle, low, high = median_interval(taken)
            row["median_ns"][name] = {"median": middle, "low": low, "high": high, "n": len(taken)}
            kit.say(f"{model.name} {name}: {middle / 1e6:.3f} ms ({low / 1e6:.3f} to {high / 1e6:.3f}), {len(taken)} runs")
        results.append(row)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--eggine", required=True)
    parser.add_argument("--root", required=True, type=pathlib.Path)
    parser.add_argument("--device")
    parser.add_argument("--target", default="sm_90a,sm_80")
    parser.add_argument("--dry", action="store_true", help="small models, nothing kept")
    parser.add_argument("--limit-s", type=float, default=460.0, help="seconds that all of it may take")
    args = parser.parse_args()
    args.eggine = os.path.abspath(args.eggine)
    args.device = args.device or "cuda:0"
    kit = Kit(args)
    doctor = json.loads(kit.eggine("doctor", "--json").stdout)
    for finding in doctor:
        kit.say(f"doctor: {finding['what']}: {finding['found']}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        models = make_models.make(kit, folder, args.root)
        engines = correctness(kit, models, folder)
        if kit.failed:
            kit.say(f"{len(kit.failed)} wrong: nothing is timed")
            return 1
        results = timing(kit, engines)
    kit.say(f"{len(results)} models timed, {len(kit.skipped)} checks or peers skipped")
    for line in kit.skipped:
        print(f"  skipped {line}")
    if args.dry or args.device == "cpu":
        print("dry run or cpu device: these times are of no GPU, nothing is kept")
        return 0
    gpu = peers.gpu_name() or "unknown-gpu"
    commit = subprocess.run(["git", "-C", str(args.root), "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True).stdout.strip() or "unknown"
    slug = re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-")
    out = args.root / "bench/runs" / f"{datetime.date.today()}-{slug}-{commit}"
    out.mkdir(parents=True, exist_ok=True)
    record = {"gpu": gpu, "commit": commit, "doctor": doctor, "skipped": kit.skipped, "results": results,
              "seconds": time.monotonic() - kit.started}
    (out / "results.json").write_text(json.dumps(record, indent=1))
    print(f"results in {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
