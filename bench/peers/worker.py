#!/usr/bin/env python3
"""One peer, one model, one process: `worker.py ENGINE MODEL.onnx CASE.npz THREADS REPEATS`.

Prints one JSON line: samples in ms, seconds to load, kernels if known, and the largest error against
the case's out0 relative to its largest magnitude. ENGINE: onnxruntime, tract, tinygrad.
"""
import json
import os
import sys
import time


def main():
    engine, path, case_path, threads, repeats = sys.argv[1:6]
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "NUM_CPU_THREADS"):
        os.environ[name] = threads
    import numpy as np

    case = np.load(case_path)
    inputs = [case[f"in{i}"] for i in range(sum(key.startswith("in") for key in case))]
    started = time.perf_counter()
    run, extra = {"onnxruntime": onnxruntime, "tract": tract, "tinygrad": tinygrad}[engine](path, inputs, int(threads))
    output = run()
    loaded = time.perf_counter()
    samples = []
    for _ in range(int(repeats)):
        start = time.perf_counter()
        run()
        samples.append((time.perf_counter() - start) * 1e3)
    expected = case["out0"]
    error = float(np.abs(np.asarray(output).reshape(expected.shape) - expected).max() / np.abs(expected).max())
    print(json.dumps({"samples_ms": samples, "load_s": loaded - started, "error": error, **extra()}))


def onnxruntime(path, inputs, threads):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds = dict(zip((it.name for it in session.get_inputs()), inputs))
    return lambda: session.run(None, feeds)[0], dict


def tract(path, inputs, threads):
    if threads != 1:
        raise SystemExit("tract's wheel runs on one thread only")
    import tract

    model = tract.onnx().load(path)
    for idx, it in enumerate(inputs):
        model.set_input_fact(idx, ",".join(map(str, it.shape)) + ",f32")
    runnable = model.into_model().into_runnable()
    return lambda: runnable.run(inputs)[0].to_numpy(), dict


def tinygrad(path, inputs, threads):
    os.environ.update(DEV="CPU", PARALLEL="0", CACHELEVEL="0")
    from tinygrad import GlobalCounters, Tensor, TinyJit
    from tinygrad.nn.onnx import OnnxRunner

    runner = OnnxRunner(path)
    names = list(runner.graph_inputs) if hasattr(runner, "graph_inputs") else list(runner.inputs)

    @TinyJit
    def forward(*tensors):
        return next(iter(runner(dict(zip(names, tensors))).values())).realize()

    tensors = [Tensor(it).realize() for it in inputs]
    counted = {}

    def run():
        GlobalCounters.reset()
        out = forward(*tensors).numpy()
        counted["kernels"] = GlobalCounters.kernel_count
        return out

    run(), run()  # The second call captures, the third replays.
    return run, lambda: counted


if __name__ == "__main__":
    main()
