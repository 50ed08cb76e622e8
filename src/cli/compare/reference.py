"""Runs a model in onnxruntime, with its optimisations off, on the arrays in0, in1, ... of a file.

Arguments: model, inputs (.npz), outputs (.npz, written: out0, out1, ...). Exit status 3: a package is missing.
The elements of a sequence are in0.0, in0.1, ...; one without elements is in0.length; what is not there is None.
"""

import sys

try:
    import numpy
    import onnxruntime
except ImportError as error:
    print(error.name or error, file=sys.stderr)
    sys.exit(3)


def value(given, name):
    if name in given:
        array = given[name]
        return array.astype(object) if array.dtype.kind in "US" else array
    elements = []
    while "%s.%d" % (name, len(elements)) in given:
        elements.append(value(given, "%s.%d" % (name, len(elements))))
    return elements if elements or name + ".length" in given else None


def arrays(name, result):
    if isinstance(result, numpy.ndarray):
        return {name: result.astype(str) if result.dtype == object else result}
    if not isinstance(result, list):
        return {}
    found = {} if result else {name + ".length": numpy.array(0)}
    for i, element in enumerate(result):
        found.update(arrays("%s.%d" % (name, i), element))
    return found


model, inputs, outputs = sys.argv[1:]
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
options.log_severity_level = 4
try:
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    given = numpy.load(inputs)
    names = [it.name for it in session.get_inputs()]
    results = session.run(None, {name: value(given, "in%d" % i) for i, name in enumerate(names)})
except Exception as error:
    print(str(error).strip().splitlines()[0], file=sys.stderr)
    sys.exit(4)
found = {}
for i, result in enumerate(results):
    found.update(arrays("out%d" % i, result))
numpy.savez(outputs, **found)
