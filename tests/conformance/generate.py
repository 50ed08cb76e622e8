"""Writes the tests of the onnx wheel as files that the runner reads: `generate.py FOLDER`.

Per test a folder `KIND/NAME` with `model.onnx` and, per data set, `setN.tsv` (role, name, element type,
extents, offset and length in bytes) beside `setN.bin` (little-endian elements, 4-bit and 2-bit types
packed from the low bits on, as ONNX packs them). `index.tsv` has one line per test: kind, name, what
excludes it (`-` for nothing), relative and absolute tolerance. Same wheel, same bytes.
"""

import os
import sys
import warnings

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.model import collect_testcases as model_cases
from onnx.backend.test.case.node import collect_testcases as node_cases
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

TRAINING = {"ai.onnx.training", "ai.onnx.preview.training"}

# Names of the element types that numpy has by another name than ONNX.
NAMES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16",
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "int4": "i4", "int2": "i2",
    "uint64": "u64", "uint32": "u32", "uint16": "u16", "uint8": "u8", "uint4": "u4", "uint2": "u2",
    "bool": "bool", "complex64": "c64", "complex128": "c128",
    "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
    "float8_e4m3fnuz": "f8e4m3fnuz", "float8_e5m2fnuz": "f8e5m2fnuz",
    "float4_e2m1fn": "f4e2m1", "float8_e8m0fnu": "f8e8m0",
}
PACKED = {"i4": 4, "u4": 4, "f4e2m1": 4, "i2": 2, "u2": 2}


class Excluded(Exception):
    """What a test has that no tensor of numbers is."""


def array(value):
    if isinstance(value, onnx.SparseTensorProto):
        raise Excluded("a sparse tensor")
    if isinstance(value, onnx.TensorProto):
        if value.data_type == onnx.TensorProto.STRING:
            raise Excluded("strings")
        value = numpy_helper.to_array(value)
    if value is None or isinstance(value, onnx.OptionalProto):
        raise Excluded("an optional")
    if isinstance(value, dict):
        raise Excluded("a map")
    if isinstance(value, (list, onnx.SequenceProto)):
        raise Excluded("a sequence")
    value = np.asarray(value)
    if value.dtype.kind in "OUS":
        raise Excluded("strings")
    return value


def encode(value):
    """Element type and bytes."""
    name = NAMES[value.dtype.name]
    flat = np.ascontiguousarray(value).reshape(-1)
    if name not in PACKED:
        return name, flat.astype(flat.dtype.newbyteorder("<")).tobytes() if flat.dtype.kind in "iufc" else flat.tobytes()
    bits = PACKED[name]
    per_byte = 8 // bits
    codes = flat.view(np.uint8).astype(np.uint8) & ((1 << bits) - 1)
    codes = np.concatenate([codes, np.zeros(-len(codes) % per_byte, np.uint8)]).reshape(-1, per_byte)
    shifts = np.arange(per_byte, dtype=np.uint8) * bits
    return name, np.bitwise_or.reduce(codes << shifts, axis=1).astype(np.uint8).tobytes()


def names_of(graph, values, role):
    infos = graph.input if role == "in" else graph.output
    if role == "in" and len(values) < len(infos):
        constants = {init.name for init in graph.initializer}
        free = [info for info in infos if info.name not in constants]
        infos = free if len(free) == len(values) else infos
    return [info.name for info in infos[: len(values)]]


def in_types(graph):
    """Whether a type that is not a tensor of numbers is among inputs and outputs."""
    for info in list(graph.input) + list(graph.output):
        kind = info.type.WhichOneof("value")
        if kind == "tensor_type":
            if info.type.tensor_type.elem_type == onnx.TensorProto.STRING:
                raise Excluded("strings")
        elif kind is not None:
            raise Excluded({"sequence_type": "a sequence", "optional_type": "an optional",
                            "map_type": "a map", "sparse_tensor_type": "a sparse tensor"}[kind])


def write(folder, kind, name, model, sets):
    """Writes one test; what excludes it."""
    at = os.path.join(folder, kind, name)
    os.makedirs(at, exist_ok=True)
    with open(os.path.join(at, "model.onnx"), "wb") as file:
        file.write(model.SerializeToString())
    excluded = "-"
    try:
        domains = {entry.domain for entry in model.opset_import} | {node.domain for node in model.graph.node}
        if domains & TRAINING:
            raise Excluded("training")
        in_types(model.graph)
        for i, (inputs, outputs) in enumerate(sets):
            lines, blob = [], b""
            for role, values in (("in", inputs), ("out", outputs)):
                for label, value in zip(names_of(model.graph, values, role), values, strict=True):
                    value = array(value)
                    dtype, data = encode(value)
                    dims = ",".join(map(str, value.shape))
                    lines.append(f"{role}\t{label}\t{dtype}\t{dims}\t{len(blob)}\t{len(data)}\n")
                    blob += data
            with open(os.path.join(at, f"set{i}.bin"), "wb") as file:
                file.write(blob)
            with open(os.path.join(at, f"set{i}.tsv"), "w", encoding="utf-8") as file:
                file.writelines(lines)
    except Excluded as why:
        excluded = str(why)
    return excluded


def read(path, info):
    """A protobuf file of the type that the model gives it."""
    with open(path, "rb") as file:
        data = file.read()
    kind = info.type.WhichOneof("value")
    proto = {"sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}.get(kind, onnx.TensorProto)()
    proto.ParseFromString(data)
    return proto


def stored(case):
    """Model and data sets of a test that the wheel holds as files."""
    url = case.url or ""
    if "/data/light/" in url:
        root = os.path.dirname(os.path.dirname(onnx.__file__))
        path = os.path.join(root, url.replace("/", os.sep))
        model = onnx.load(path)
        constants = {init.name for init in model.graph.initializer}
        inputs = [Runner.generate_dummy_data(info, seed=0, name=case.model_name, random=False)
                  for info in model.graph.input if info.name not in constants]
        outputs = [read(path.replace(".onnx", f"_output_{i}.pb"), info)
                   for i, info in enumerate(model.graph.output)]
        return model, [(inputs, outputs)]
    folder = case.model_dir
    model = onnx.load(os.path.join(folder, "model.onnx"))
    constants = {init.name for init in model.graph.initializer}
    infos = {"input": list(model.graph.input), "output": list(model.graph.output)}
    sets = []
    while os.path.isdir(at := os.path.join(folder, f"test_data_set_{len(sets)}")):
        values = {}
        for role, known in infos.items():
            count = 0
            while os.path.exists(os.path.join(at, f"{role}_{count}.pb")):
                count += 1
            if role == "input" and count < len(known):
                known = [info for info in known if info.name not in constants]
            values[role] = [read(os.path.join(at, f"{role}_{i}.pb"), known[i]) for i in range(count)]
        sets.append((values["input"], values["output"]))
    return model, sets


def all_cases():
    for case in node_cases(None):
        yield "node", case.name, case.model, case.data_sets or [], case
    for case in model_cases():
        # Those without data are read below from the wheel's files.
        if case.data_sets:
            yield "simple", case.name, case.model, case.data_sets, case
    for kind, folder in (("light", "real"), ("simple", "simple"), ("pytorch-operator",) * 2, ("pytorch-converted",) * 2):
        for case in load_model_tests(kind=folder):
            model, sets = stored(case)
            yield kind, case.name, model, sets, case


def main():
    warnings.filterwarnings("ignore")
    folder = sys.argv[1]
    index = {}
    for kind, name, model, sets, case in all_cases():
        excluded = write(folder, kind, name, model, sets) if sets else "no data"
        index[kind, name] = f"{kind}\t{name}\t{excluded}\t{case.rtol}\t{case.atol}\n"
    # Written last: a folder with an index is complete.
    with open(os.path.join(folder, "index.tsv"), "w", encoding="utf-8") as file:
        file.writelines(index[key] for key in sorted(index))
    print(f"{len(index)} tests of onnx {onnx.__version__} in {folder}")


main()
