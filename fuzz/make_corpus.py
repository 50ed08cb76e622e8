"""Makes fuzz/corpus/import: small models, one for each family of operators. Needs the onnx package.

    python3 fuzz/make_corpus.py
"""

import os

from onnx import TensorProto as T
from onnx import helper as h

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "import")


def const(name, values, dims=None, dtype=None):
    dtype = dtype or (T.INT64 if all(isinstance(v, int) for v in values) else T.FLOAT)
    return h.make_tensor(name, dtype, [len(values)] if dims is None else dims, values)


def save(name, nodes, inputs, constants=(), outputs=("y",), opset=18, functions=(), domains=()):
    ports = [h.make_tensor_value_info(n, t, d) for n, t, d in inputs]
    outs = [h.make_tensor_value_info(n, T.FLOAT, None) for n in outputs]
    graph = h.make_graph(nodes, "g", ports, outs, list(constants))
    imports = [h.make_opsetid("", opset)] + [h.make_opsetid(d, 1) for d in domains]
    model = h.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=8)
    with open(os.path.join(FOLDER, name + ".onnx"), "wb") as file:
        file.write(model.SerializeToString())


def n(op, inputs, outputs=("y",), **attrs):
    return h.make_node(op, list(inputs), list(outputs), **attrs)


x4 = [("x", T.FLOAT, [1, 2, 4, 4])]
x2 = [("x", T.FLOAT, [2, 3])]
w = const("w", [0.5] * 36, [2, 2, 3, 3])
os.makedirs(FOLDER, exist_ok=True)
save("conv", [n("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]), n("Relu", ["c"])], x4, [w])
save("deconv", [n("ConvTranspose", ["x", "w"], strides=[2, 2], output_padding=[1, 1], auto_pad="SAME_LOWER")], x4, [w])
save("pool", [n("AveragePool", ["x"], ["a"], kernel_shape=[3, 3], ceil_mode=1, count_include_pad=1, pads=[1, 1, 1, 1]),
              n("MaxPool", ["a"], kernel_shape=[2, 2], dilations=[1, 1])], x4, opset=19)
save("resize", [n("Resize", ["x", "", "s"], mode="cubic", coordinate_transformation_mode="align_corners")], x4,
     [const("s", [1.0, 1.0, 1.5, 2.0])])
save("gridsample", [n("GridSample", ["x", "g"], mode="bilinear", padding_mode="reflection")],
     x4 + [("g", T.FLOAT, [1, 2, 2, 2])])
save("norms", [n("LayerNormalization", ["x", "w"], ["a"]), n("Softmax", ["a"], ["b"], axis=0), n("ReduceL2", ["b", "i"])],
     x2, [const("w", [1.0, 2.0, 3.0]), const("i", [1])])
save("softmax11", [n("Softmax", ["x"], axis=1)], [("x", T.FLOAT, [2, 3, 4])], opset=11)
save("gemm", [n("Gemm", ["x", "w", "b"], alpha=0.5, transB=1)], x2, [const("w", [0.1] * 12, [4, 3]), const("b", [1.0] * 4)])
save("einsum", [n("Einsum", ["x", "x"], equation="ij,kj->ik")], x2)
save("shape", [n("Shape", ["x"], ["s"]), n("Gather", ["s", "i"], ["d"]), n("Concat", ["d", "m"], ["t"], axis=0),
               n("Reshape", ["x", "t"])], x2, [const("i", [0]), const("m", [-1])])
save("slice", [n("Slice", ["x", "a", "b", "c", "d"])], x2,
     [const("a", [-1]), const("b", [-9]), const("c", [1]), const("d", [-2])])
save("pad", [n("Pad", ["x", "p"], mode="reflect")], x2, [const("p", [0, 1, 0, 2])])
save("topk", [n("TopK", ["x", "k"], ["y", "z"])], x2, [const("k", [2])], ["y", "z"])
save("gather", [n("GatherND", ["x", "i"], ["a"]), n("ScatterND", ["x", "i", "a"])], x2, [const("i", [1, 0], [1, 2])])
save("onehot", [n("OneHot", ["x", "d", "v"])], [("x", T.INT64, [2])], [const("d", [3]), const("v", [0.0, 1.0])])
save("fill", [n("ConstantOfShape", ["n"], ["z"]), n("ReduceSum", ["z"], ["s"], keepdims=0), n("Add", ["x", "s"])],
     x2, [const("n", [1000000])])
save("range", [n("Range", ["a", "b", "c"], ["r"]), n("Cast", ["r"], to=T.FLOAT)], x2,
     [const("a", [0], []), const("b", [9], []), const("c", [2], [])])
save("quant", [n("QuantizeLinear", ["x", "s", "z"], ["q"]), n("DequantizeLinear", ["q", "s", "z"])], x2,
     [const("s", [0.1], []), const("z", [3], [], T.INT8)])
save("dynquant", [n("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), n("MatMulInteger", ["q", "w", "z"], ["m"]),
                  n("Cast", ["m"], to=T.FLOAT)], x2, [const("w", [1, 2, 3], [3, 1], T.UINT8)])
save("lstm", [n("LSTM", ["x", "w", "r"], ["y", "h", "c"], hidden_size=1, direction="bidirectional")],
     [("x", T.FLOAT, [2, 1, 1])], [const("w", [0.5] * 8, [2, 4, 1]), const("r", [0.5] * 8, [2, 4, 1])])
save("gru", [n("GRU", ["x", "w", "r"], ["y"], hidden_size=1, linear_before_reset=1)],
     [("x", T.FLOAT, [2, 1, 1])], [const("w", [0.5] * 3, [1, 3, 1]), const("r", [0.5] * 3, [1, 3, 1])])
save("attention", [n("Attention", ["x", "x", "x"], q_num_heads=1, kv_num_heads=1, is_causal=1)],
     [("x", T.FLOAT, [1, 2, 4])], opset=23)
f32 = lambda name, dims=None: h.make_tensor_value_info(name, T.FLOAT, dims)
then = h.make_graph([n("Exp", ["x"], ["t"])], "t", [], [f32("t")])
other = h.make_graph([n("Neg", ["x"], ["e"])], "e", [], [f32("e")])
save("if", [n("If", ["c"], then_branch=then, else_branch=other)], x2 + [("c", T.BOOL, [])])
i64, flag = h.make_tensor_value_info("i", T.INT64, []), lambda name: h.make_tensor_value_info(name, T.BOOL, [])
body = h.make_graph([n("Identity", ["c"], ["d"]), n("Add", ["s", "x"], ["t"]), n("Identity", ["t"], ["u"])],
                    "b", [i64, flag("c"), f32("s", [2, 3])], [flag("d"), f32("t"), f32("u")])
save("loop", [n("Loop", ["n", "", "x"], ["y", "z"], body=body)], x2, [const("n", [3], [])], ["y", "z"])
step = h.make_graph([n("Add", ["s", "e"], ["t"]), n("Identity", ["t"], ["o"])], "b",
                    [f32("s", [3]), f32("e", [3])], [f32("t"), f32("o")])
save("scan", [n("Scan", ["i", "x"], ["y", "z"], body=step, num_scan_inputs=1)], x2, [const("i", [0.0] * 3)], ["y", "z"])
save("sequence", [n("SplitToSequence", ["x"], ["q"], axis=1), n("SequenceAt", ["q", "p"], ["a"]),
                  n("ConcatFromSequence", ["q"], ["b"], axis=0), n("Mul", ["a", "a"])], x2, [const("p", [-1], [])])
double = h.make_function("my", "Twice", ["a"], ["b"], [n("Add", ["a", "a"], ["b"])], [h.make_opsetid("", 18)])
save("function", [h.make_node("Twice", ["x"], ["t"], domain="my"), h.make_node("Twice", ["t"], ["y"], domain="my")],
     x2, functions=[double], domains=["my"])
save("unknown", [h.make_node("Foo", ["x"], ["y"], domain="my")], x2, domains=["my"])
save("symbolic", [n("MatMul", ["x", "z"])], [("x", T.FLOAT, ["n", 3]), ("z", T.FLOAT, [3, "m"])])
save("halves", [n("Cast", ["x"], ["h"], to=T.FLOAT16), n("Pow", ["h", "e"], ["p"]), n("Cast", ["p"], to=T.FLOAT)], x2,
     [const("e", [2.0], [], T.FLOAT16)])
print(len(os.listdir(FOLDER)), "models in", FOLDER)
