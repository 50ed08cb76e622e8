#!/usr/bin/env python3
"""Writes the vision models of the onnx wheel with seeded random weights, and a case for each.

The wheel's `light_*` models are full size, but their weights are constant fills. Here each becomes a
real initialiser: He-scaled for convolutions and matrix products, near one for scales and variances,
small for shifts, so that activations keep their magnitude. Opset and graph stay as they are.

    make_models.py OUT_FOLDER [NAME ...]     NAME: resnet50, squeezenet, ... (default: these two)

writes OUT_FOLDER/light_NAME.onnx and OUT_FOLDER/light_NAME.case0.npz (in0, out0). The expected output
is onnxruntime's with optimisations off when onnxruntime is there, else the case holds the input only.
"""
import os
import sys

import numpy as np
import onnx
from onnx import numpy_helper

WHEEL = os.path.join(os.path.dirname(onnx.__file__), "backend/test/data/light")
SEED = 0


def fill_shapes(graph):
    """Shape of every value that the wheel's model fills with a constant, and of every f32 initialiser."""
    initialisers = {it.name: numpy_helper.to_array(it) for it in graph.initializer}
    shapes = {name: it.shape for name, it in initialisers.items() if it.dtype == np.float32}
    kept = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shapes[node.output[0]] = tuple(int(extent) for extent in initialisers[node.input[0]])
        else:
            kept.append(node)
    return kept, shapes, initialisers


def roles(nodes, shapes):
    """What each weight is for, by the operand slot that it (or its reshaped self) fills."""
    source = {node.output[0]: node.input[0] for node in nodes if node.op_type in ("Unsqueeze", "Reshape")}

    def origin(name):
        while name in source:
            name = source[name]
        return name

    slots = {
        "BatchNormalization": ["", "scale", "shift", "shift", "variance"],
        "Conv": ["", "weight", "shift"],
        "Gemm": ["", "weight", "shift"],
        "MatMul": ["weight", "weight"],
        "Mul": ["scale", "scale"],
    }
    found = {}
    summed = {operand for node in nodes if node.op_type in ("Sum", "Add") for operand in node.input}
    for node in nodes:
        for slot, name in enumerate(node.input):
            name = origin(name)
            if name in shapes and node.op_type in slots and slots[node.op_type][slot]:
                found[name] = slots[node.op_type][slot]
                if found[name] == "scale" and node.output[0] in summed:
                    found[name] = "branch scale"  # Else each residual block doubles the variance.
    return found


def draw(rng, role, shape):
    noise = rng.standard_normal(shape).astype(np.float32)
    if role == "weight":
        fan_in = int(np.prod(shape[1:])) if len(shape) > 2 else max(shape)
        return noise * np.float32(np.sqrt(2.0 / fan_in))
    if role == "scale":
        return 1 + np.float32(0.1) * noise
    if role == "branch scale":
        return np.float32(0.25) * (1 + np.float32(0.1) * noise)
    if role == "variance":
        return np.abs(1 + np.float32(0.1) * noise)
    return np.float32(0.05) * noise


def make(name, folder):
    model = onnx.load(os.path.join(WHEEL, f"light_{name}.onnx"))
    graph = model.graph
    nodes, shapes, initialisers = fill_shapes(graph)
    role = roles(nodes, shapes)
    used = {operand for node in nodes for operand in node.input}
    rng = np.random.default_rng(SEED)
    weights = []
    for weight, shape in shapes.items():
        if weight in used:
            values = draw(rng, role.get(weight, "shift"), shape).astype(np.float32)
            weights.append(numpy_helper.from_array(values, weight))
    weights += [numpy_helper.from_array(it, n) for n, it in initialisers.items() if n in used and n not in shapes]
    for node in nodes:
        if node.op_type == "Dropout":  # The mask output is unused.
            del node.output[1:]
    known = {it.name for it in weights}
    inputs = [it for it in graph.input if it.name in used and it.name not in known]
    for field, items in ((graph.node, nodes), (graph.initializer, weights), (graph.input, inputs)):
        del field[:]
        field.extend(items)
    del graph.value_info[:]
    model.ir_version = 8
    onnx.checker.check_model(model)
    path = os.path.join(folder, f"light_{name}.onnx")
    onnx.save(model, path)
    case = {}
    for idx, it in enumerate(inputs):
        extents = [dim.dim_value for dim in it.type.tensor_type.shape.dim]
        case[f"in{idx}"] = rng.standard_normal(extents).astype(np.float32)
    try:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        feeds = {it.name: case[f"in{idx}"] for idx, it in enumerate(inputs)}
        for idx, out in enumerate(session.run(None, feeds)):
            case[f"out{idx}"] = out
    except ImportError:
        pass
    np.savez(os.path.join(folder, f"light_{name}.case0.npz"), **case)
    print(f"{path}: {len(nodes)} nodes, {sum(numpy_helper.to_array(w).size for w in weights) / 1e6:.1f} M parameters")


def main():
    folder, names = sys.argv[1], sys.argv[2:] or ["resnet50", "squeezenet"]
    os.makedirs(folder, exist_ok=True)
    for name in names:
        make(name, folder)


if __name__ == "__main__":
    main()
