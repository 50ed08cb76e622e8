#!/usr/bin/env python3
"""Curves of best-so-far against candidates: swarm, random search, each agent alone. See README.md."""

import argparse
import csv
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time

# Model, and the case that its shapes come from.
MODELS = [
    ("light_squeezenet", "light_squeezenet.onnx", None),
    ("resnet50", "resnet50.legacy.onnx", "resnet50.legacy.case0.npz"),
    ("bert_encoder", "bert_encoder.legacy.onnx", "bert_encoder.legacy.case0.npz"),
    ("dit_transformer", "dit_transformer.legacy.onnx", "dit_transformer.legacy.case0.npz"),
    ("hifigan", "hifigan.legacy.onnx", "hifigan.legacy.case0.npz"),
    ("sd_unet", "sd_unet.legacy.onnx", "sd_unet.legacy.case0.npz"),
]

AGENTS = [
    "contraction-tiler", "row-tiler", "pointwise-tiler", "pack-layouter", "chooser", "wanderer", "fuser",
]

SWARM, PLAIN, RANDOM = "swarm", "swarm without lessons", "random"

COLOURS = ["#d62728", "#ff9896", "#1f77b4", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf"]


def find(folders, name):
    for folder in folders:
        for path in [folder / name, *folder.glob(f"*/{name}")]:
            if path.is_file():
                return path
    sys.exit(f"search.py: `{name}` is in none of {', '.join(map(str, folders))}; name its folder with --models")


class Bench:
    def __init__(self, args):
        self.args = args
        self.rows = []  # model, strategy, seed, step, ratio
        self.engines = []  # model, seed, ratio, low, high, measured, seconds
        self.rates = []  # model, measured, seconds, unattributed

    def compile(self, model, evidence, seed, extra, race):
        name, file, case = model
        command = [
            self.args.eggine, "compile", str(find(self.args.models, file)), "-o", str(self.args.work / f"{name}.engine"),
            "--budget", str(self.args.steps), "--seed", str(seed), "--evidence", str(evidence),
            "--race", f"{race}s", "--quiet", "--json", "--threads", str(self.args.threads),
            "--device-threads", str(self.args.threads), *extra,
        ]
        if case:
            command += ["--shapes-from", str(find(self.args.models, case))]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            sys.exit(f"search.py: {' '.join(command)}\n{run.stderr}")
        return json.loads(run.stdout)

    def run(self, model, strategy, evidence, seed, extra, race=0):
        start = time.monotonic()
        report = self.compile(model, evidence, seed, extra, race)
        seconds = time.monotonic() - start
        curve = report["search"]["curve"]
        first = curve[0][1]
        for step, ns in curve:
            self.rows.append((model[0], strategy, seed, step, ns / first))
        self.rates.append((model[0], strategy, report["n_measured"], report["phases"]))
        last = curve[-1][1] / first
        print(f"{model[0]:<18} {strategy:<24} seed {seed}: {last:.3f} after {report['search']['n_steps']} "
              f"({report['n_measured']} measured, {seconds:.1f} s)", flush=True)
        return report

    def all(self):
        models = [model for model in MODELS if not self.args.only or model[0] in self.args.only]
        evidence = {model[0]: self.args.work / f"{model[0]}.evidence" for model in models}
        for model in models:
            for seed in range(self.args.seeds):
                self.run(model, PLAIN, evidence[model[0]], seed, ["--no-lessons"])
        for model in models:
            name = model[0]
            lessons = self.args.work / f"without-{name}.evidence"
            others = [str(path) for other, path in evidence.items() if other != name]
            lessons.unlink(missing_ok=True)
            if others:
                subprocess.run([self.args.eggine, "evidence", "merge", str(lessons), *others], check=True, stdout=subprocess.DEVNULL)
            taught = ["--lessons-from", str(lessons)] if others else ["--no-lessons"]
            for seed in range(self.args.seeds):
                report = self.run(model, SWARM, evidence[name], seed, taught, race=self.args.race)
                won = report["comparison"]
                self.engines.append((name, seed, *((won["ratio"], won["low"], won["high"]) if won else (1.0, 1.0, 1.0))))
            for seed in range(self.args.seeds):
                self.run(model, RANDOM, evidence[name], seed, ["--strategy", "random", "--no-lessons"])
                for agent in AGENTS:
                    self.run(model, agent, evidence[name], seed, ["--agents", agent, "--no-lessons"])
        self.write([model[0] for model in models])

    def value(self, model, strategy, seed, step):
        best = 1.0
        for row in self.rows:
            if row[:3] == (model, strategy, seed) and row[3] <= step:
                best = row[4]
        return best

    def median(self, model, strategy, step):
        return statistics.median(self.value(model, strategy, seed, step) for seed in range(self.args.seeds))

    def write(self, models):
        out = self.args.out
        out.mkdir(parents=True, exist_ok=True)
        with open(out / "curves.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["model", "strategy", "seed", "candidates", "relative_time"])
            writer.writerows((*row[:4], f"{row[4]:.5f}") for row in self.rows)
        with open(out / "engines.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["model", "seed", "time_of_budget_0_over_time", "low", "high"])
            writer.writerows((name, seed, *(f"{x:.4f}" for x in numbers)) for name, seed, *numbers in self.engines)
        strategies = [SWARM, PLAIN, RANDOM, *AGENTS]
        for model in models:
            (out / f"{model}.svg").write_text(self.svg(model, strategies))
        (out / "summary.md").write_text(self.summary(models, strategies))
        print((out / "summary.md").read_text())

    def summary(self, models, strategies):
        steps = self.args.steps
        lines = [
            f"# Search, {self.args.steps} candidates, {self.args.seeds} seeds, {self.args.threads} thread(s)", "",
            "Time of the best launches over that of the first choices, median over seeds, after all candidates. Lower is better.", "",
            "| model | " + " | ".join(strategies) + " |", "|---" * (len(strategies) + 1) + "|",
        ]
        wins = 0
        for model in models:
            medians = [self.median(model, strategy, steps) for strategy in strategies]
            # Lessons are a way to order the swarm, not a rival of it.
            rivals = medians[2:]
            wins += medians[0] <= min(rivals)
            lines.append(f"| {model} | " + " | ".join(f"{x:.3f}" for x in medians) + " |")
        lines += ["", f"The swarm's median is best (or equal) on {wins} of {len(models)} models.", ""]
        lines += ["Whole engines, raced: time of the budget-0 engine over time of the swarm's.", "", "| model | seeds | median |", "|---|---|---|"]
        medians = []
        for model in models:
            ratios = [row[2] for row in self.engines if row[0] == model]
            medians.append(statistics.median(ratios))
            lines.append(f"| {model} | {', '.join(f'{x:.3f}' for x in ratios)} | {medians[-1]:.3f} |")
        mean = math.exp(statistics.mean(math.log(x) for x in medians))
        lines += ["", f"Geometric mean: {mean:.3f}.", ""]
        lines += ["For comparison (`shared/docs/PEERS.md`, another run on such a machine): tinygrad's BEAM=2 takes light_squeezenet from "
                  "148 to 31.8 ms in 200 s on two cores.", ""]
        total = sum(phases["total_s"] for *_, phases in self.rates)
        rest = sum(phases["unattributed_s"] for *_, phases in self.rates)
        measured = sum(row[2] for row in self.rates)
        rate = sum(row[2] for row in self.rates) / max(sum(dict(row[3]["phases"]).get("measure", 0) for row in self.rates), 1e-9)
        lines += [f"{rate:.1f} verified candidates per second of verification and timing.", ""]
        lines += [f"{measured} candidates measured in {total:.0f} s of compilations; {100 * rest / total:.2f} % of the time unattributed.", ""]
        return "\n".join(lines)

    def svg(self, model, strategies):
        width, height, left, top = 720, 420, 60, 30
        right, bottom = width - 190, height - 40
        steps = self.args.steps
        low = min(row[4] for row in self.rows if row[0] == model)
        low = math.floor(low * 20 - 0.5) / 20
        x = lambda step: left + (right - left) * step / steps
        y = lambda ratio: top + (bottom - top) * (1.02 - ratio) / (1.02 - low)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="11">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            f'<text x="{left}" y="18" font-size="13">{model}: best so far over first choice, median of {self.args.seeds} seeds</text>',
        ]
        ratio = 1.0
        while ratio >= low - 1e-9:
            parts.append(f'<line x1="{left}" x2="{right}" y1="{y(ratio):.1f}" y2="{y(ratio):.1f}" stroke="#ddd"/>')
            parts.append(f'<text x="{left - 34}" y="{y(ratio) + 4:.1f}">{ratio:.2f}</text>')
            ratio -= 0.05
        for step in range(0, steps + 1, max(1, steps // 5)):
            parts.append(f'<text x="{x(step) - 8:.1f}" y="{bottom + 16}">{step}</text>')
        parts.append(f'<text x="{(left + right) / 2 - 30}" y="{height - 8}">candidates</text>')
        marks = range(0, steps + 1, max(1, steps // 60))
        for nth, strategy in reversed(list(enumerate(strategies))):
            colour, stroke = COLOURS[nth % len(COLOURS)], 2.5 if nth == 0 else 1.3
            points = " ".join(f"{x(step):.1f},{y(self.median(model, strategy, step)):.1f}" for step in marks)
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{stroke}"/>')
            line = top + 16 * nth + 10
            parts.append(f'<line x1="{right + 12}" x2="{right + 32}" y1="{line}" y2="{line}" stroke="{colour}" stroke-width="{stroke}"/>')
            parts.append(f'<text x="{right + 38}" y="{line + 4}">{strategy}</text>')
        parts.append("</svg>\n")
        return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--eggine", default="target/release/eggine")
    parser.add_argument("--models", type=pathlib.Path, action="append", required=True, help="folder of models and cases; may be repeated")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, help="folder of evidence and engines [default: a new one in --out]")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--race", type=float, default=4.0, help="seconds for each race of whole engines")
    parser.add_argument("--threads", type=int, default=1, help="threads of the compiler and of the cpu device")
    parser.add_argument("--only", action="append", help="only this model; may be repeated")
    args = parser.parse_args()
    args.work = args.work or args.out / "work"
    args.work.mkdir(parents=True, exist_ok=True)
    Bench(args).all()


if __name__ == "__main__":
    main()
