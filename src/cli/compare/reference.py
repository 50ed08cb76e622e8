"""Runs a model in onnxruntime, with its optimisations off, on the arrays in0, in1, ... of a file.

Arguments: model, inputs (.npz), outputs (.npz, written: out0, out1, ...). Exit status 3: a package is missing.
"""

import sys

try:
    import numpy
    import onnxruntime
except ImportError as error:
    print(error.name or error, file=sys.stderr)
    sys.exit(3)

model, inputs, outputs = sys.argv[1:]
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
options.log_severity_level = 4
try:
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    given = numpy.load(inputs)
    names = [it.name for it in session.get_inputs()]
    results = session.run(None, {name: given["in%d" % i] for i, name in enumerate(names)})
except Exception as error:
    print(str(error).strip().splitlines()[0], file=sys.stderr)
    sys.exit(4)
arrays = {"out%d" % i: it for i, it in enumerate(results) if isinstance(it, numpy.ndarray)}
numpy.savez(outputs, **arrays)
