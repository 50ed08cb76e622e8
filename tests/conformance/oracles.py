"""Compares three oracles on every conformance test: `oracles.py WORKSPACE [FILTER]`.

Ours is judged by `cargo xtask conformance` (`target/conformance/report.tsv`: whether it gives the expected
outputs); onnx.reference and onnxruntime (all graph optimisations off) are run here. An answer is compared
with the expected outputs of the suite, with the runner's tolerances. `target/conformance/oracles.tsv` has
one line per test. Each test on which an oracle gives another answer than expected has to have a line in
`tests/conformance/disagreements.tsv`, which says who is right and why; and two of three have to agree with
the expected outputs wherever two of three have an answer.
"""

import os
import signal
import sys
import warnings

import ml_dtypes
import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

try:
    import onnxruntime as ort
    ort.set_default_logger_severity(4)
except ImportError:
    ort = None

LIMIT_S = 60

DTYPES = {
    "f64": "<f8", "f32": "<f4", "f16": "<f2", "i64": "<i8", "i32": "<i4", "i16": "<i2", "i8": "i1",
    "u64": "<u8", "u32": "<u4", "u16": "<u2", "u8": "u1", "bool": "?", "bf16": ml_dtypes.bfloat16,
    "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f8e8m0": ml_dtypes.float8_e8m0fnu, "f4e2m1": ml_dtypes.float4_e2m1fn,
    "i4": ml_dtypes.int4, "u4": ml_dtypes.uint4, "i2": ml_dtypes.int2, "u2": ml_dtypes.uint2,
}
BITS = {"f4e2m1": 4, "i4": 4, "u4": 4, "i2": 2, "u2": 2}
ROUNDING = {"f64": 2.0**-21, "f32": 2.0**-21, "f16": 2.0**-11, "bf16": 2.0**-8}


class TooLong(Exception):
    """A test took more than its time."""


def alarm(*_):
    raise TooLong


def decode(name, dims, data):
    shape = [int(dim) for dim in dims.split(",") if dim]
    if name not in BITS:
        return np.frombuffer(data, dtype=DTYPES[name]).reshape(shape)
    bits, codes = BITS[name], np.frombuffer(data, dtype=np.uint8)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = ((codes[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[: int(np.prod(shape))]
    if name in ("i4", "i2"):
        codes = ((codes.astype(np.int8) << (8 - bits)) >> (8 - bits)).astype(np.int8)
        return codes.astype(DTYPES[name]).reshape(shape)
    if name == "f4e2m1":
        return codes.view(DTYPES[name]).reshape(shape)
    return codes.astype(DTYPES[name]).reshape(shape)


def sets(folder):
    n = 0
    while os.path.exists(path := os.path.join(folder, f"set{n}.tsv")):
        with open(path.replace(".tsv", ".bin"), "rb") as file:
            blob = file.read()
        found = {"in": [], "out": []}
        with open(path, encoding="utf-8") as file:
            for line in file:
                role, name, dtype, dims, offset, length = line.rstrip("\n").split("\t")
                data = blob[int(offset): int(offset) + int(length)]
                found[role].append((name, dtype, decode(dtype, dims, data)))
        yield found["in"], found["out"]
        n += 1


def difference(got, dtype, want, rtol, atol):
    got = np.asarray(got)
    if list(got.shape) != list(want.shape):
        return f"shape {list(got.shape)}, expected {list(want.shape)}"
    # onnxruntime hands floats of 8 bits out as their bits.
    if got.dtype == np.uint8 and want.dtype.itemsize == 1 and dtype.startswith("f8"):
        got = got.view(want.dtype)
    wide = np.float64 if dtype[0] in "fb" and dtype != "bool" else None
    if wide is None:
        if got.dtype != want.dtype:
            return f"type {got.dtype}, expected {want.dtype}"
        return None if (got == want).all() else f"{int((got != want).sum())} of {got.size} differ"
    got, want = got.astype(wide), want.astype(wide)
    rounding = ROUNDING.get(dtype)
    if rounding is None:
        rtol = atol = 0.0
    else:
        finite = np.abs(want[np.isfinite(want)])
        rtol = max(rtol, 4 * rounding)
        atol = max(atol, 4 * rounding * (finite.max() if finite.size else 0.0))
    with np.errstate(all="ignore"):
        same = (got == want) | (np.isnan(got) & np.isnan(want)) | (np.abs(got - want) <= atol + rtol * np.abs(want))
    if same.all():
        return None
    at = np.unravel_index(int(np.argmin(same)), same.shape) if same.ndim else ()
    return f"{int((~same).sum())} of {same.size} differ, {got[at]:.6g} for {want[at]:.6g}"


def judge(run, folder, rtol, atol):
    """`agrees`, `differs: how` or `refuses: why`."""
    signal.alarm(LIMIT_S)
    try:
        for inputs, outputs in sets(folder):
            results = run({name: value for name, _, value in inputs})
            if len(results) != len(outputs):
                return f"differs: {len(results)} outputs"
            for got, (name, dtype, want) in zip(results, outputs, strict=True):
                if how := difference(got, dtype, want, rtol, atol):
                    return f"differs: {name} {how}"
        return "agrees"
    except TooLong:
        return "refuses: too slow"
    except Exception as err:  # Whatever it says, it has no answer.
        text = " ".join(str(err).split()) or "no message"
        return f"refuses: {type(err).__name__}: {text[:100]}"
    finally:
        signal.alarm(0)


def reference(path):
    def run(feeds):
        evaluator = ReferenceEvaluator(path)
        # A function body's empty names and initialisers with inputs are its own matter.
        return evaluator.run(None, feeds)
    return run


def runtime(path):
    if ort is None:
        raise RuntimeError("onnxruntime is not installed")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = {info.name for info in session.get_inputs()}
    return lambda feeds: session.run(None, {name: value for name, value in feeds.items() if name in names})


def started(make, path):
    """A runner; one that cannot start refuses every data set."""
    try:
        return make(path)
    except Exception as err:
        failure = err

        def run(_):
            raise failure
        return run


def read_tsv(path):
    with open(path, encoding="utf-8") as file:
        return [line.rstrip("\n").split("\t") for line in file if not line.startswith("#")]


def main():
    warnings.filterwarnings("ignore")
    signal.signal(signal.SIGALRM, alarm)
    workspace = sys.argv[1]
    folder = os.path.join(workspace, "target/conformance")
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    ours = {row[0]: row[1] for row in read_tsv(os.path.join(folder, "report.tsv"))}
    known = {row[0] for row in read_tsv(os.path.join(workspace, "tests/conformance/disagreements.tsv"))}
    lines, counts, problems, n_alone = [], {}, [], 0
    for kind, name, excluded, rtol, atol in read_tsv(os.path.join(folder, "index.tsv")):
        test = f"{kind}/{name}"
        if excluded != "-" or only not in test:
            continue
        at = os.path.join(folder, kind, name)
        path = os.path.join(at, "model.onnx")
        verdict = ours.get(test, "unknown")
        answers = {
            "eggine": {"pass": "agrees", "wrong": "differs"}.get(verdict, "refuses"),
            "onnx.reference": judge(started(reference, path), at, float(rtol), float(atol)),
            "onnxruntime": judge(started(runtime, path), at, float(rtol), float(atol)),
        }
        lines.append("\t".join([test, *answers.values()]) + "\n")
        short = {who: answer.split(":")[0] for who, answer in answers.items()}
        for who, answer in short.items():
            counts[who, answer] = counts.get((who, answer), 0) + 1
        answered = [answer for answer in short.values() if answer != "refuses"]
        if "differs" in answered and test not in known:
            problems.append(f"{test} is not in disagreements.tsv: {answers}")
        if len(answered) >= 2 and answered.count("agrees") < 2 and test not in known:
            problems.append(f"no two agree on {test}: {answers}")
        n_alone += len(answered) < 2
    with open(os.path.join(folder, "oracles.tsv"), "w", encoding="utf-8") as file:
        file.writelines(lines)
    for (who, answer), count in sorted(counts.items()):
        print(f"{count:6} {who} {answer}")
    print(f"{len(lines)} tests; on {n_alone} fewer than two of the three have an answer, the suite's own is the second")
    for problem in problems:
        print(problem)
    sys.exit(bool(problems))


main()
