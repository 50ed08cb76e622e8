"""The kit's whole path, its torch half too, without a GPU, torch or Eggine: each is a stand-in that only
knows the calls which the kit makes, and a name that it has not is an error. Nothing is measured.

    python3 bench/gpu/test_kit.py                    ends with "the kit runs" and status 0
    python3 bench/gpu/test_kit.py --without NAME     the stand-in lacks torch.NAME: ends with an error
"""

import argparse
import contextlib
import importlib.machinery
import json
import pathlib
import sys
import tempfile
import types

MISSING = ["no name is missing"]


def module(name, **names):
    """A module that `import` and `find_spec` find."""
    made = types.ModuleType(name)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None)
    made.__dict__.update({key: value for key, value in names.items() if key not in MISSING})
    sys.modules[name] = made
    return made


class Tensor:
    def __init__(self, *shape):
        self.shape = shape
        self.is_on_gpu = False

    def numpy(self):
        assert not self.is_on_gpu, "a tensor of the GPU has no array"
        return list(self.shape)

    def cuda(self):
        moved = Tensor(*self.shape)
        moved.is_on_gpu = True
        return moved

    def detach(self):
        return self

    clone = contiguous = detach

    def reshape(self, rows, columns):
        n = 1
        for extent in self.shape:
            n *= extent
        return Tensor(n // columns if rows == -1 else rows, columns)

    def t(self):
        return Tensor(*reversed(self.shape))


class Linear:
    def __init__(self, n_in, n_out):
        self.weight = Tensor(n_out, n_in)
        self.hooks = []

    def register_forward_hook(self, hook):
        self.hooks.append(hook)
        return types.SimpleNamespace(remove=lambda: self.hooks.remove(hook))

    def __call__(self, x):
        for hook in self.hooks:
            hook(self, (x,), x)
        return Tensor(*x.shape[:-1], self.weight.shape[0])


class Module:
    """A model with one linear layer, whose output is a tuple or not, as the real ones' are."""

    def __init__(self, is_tuple):
        self.is_tuple = is_tuple
        self.linear = Linear(16, 8)
        self.is_evaluated = self.is_on_gpu = False

    def eval(self):
        self.is_evaluated = True
        return self

    def cuda(self):
        self.is_on_gpu = True
        return self

    def modules(self):
        return [self, self.linear]

    def register_forward_hook(self, hook):
        return types.SimpleNamespace(remove=lambda: None)

    def __call__(self, inputs):
        assert self.is_evaluated and inputs.is_on_gpu == self.is_on_gpu
        out = self.linear(Tensor(inputs.shape[0], 16))
        return (out,) if self.is_tuple else out


def export(model, inputs, path, *, dynamo, external_data):
    assert dynamo and not external_data and isinstance(inputs, tuple)
    pathlib.Path(path).write_text("model")


def mm(a, b):
    assert a.shape[1] == b.shape[0], f"{a.shape} by {b.shape}"
    return Tensor(a.shape[0], b.shape[1])


class Event:
    def __init__(self, enable_timing):
        self.was_recorded = False

    def record(self):
        self.was_recorded = True

    def synchronize(self):
        assert self.was_recorded

    def elapsed_time(self, end):
        assert self.was_recorded and end.was_recorded
        return 1.0


def compiled(model, mode):
    assert mode == "max-autotune"
    return model


def install():
    """Stand-ins of everything that the kit imports."""
    space = types.SimpleNamespace
    cuda = space(is_available=lambda: True, get_device_name=lambda _: "Stand-in GPU", Event=Event)
    flags = space(cuda=space(matmul=space(allow_tf32=True)), cudnn=space(allow_tf32=True))
    module(
        "torch", manual_seed=lambda seed: None, no_grad=contextlib.nullcontext, cuda=cuda, backends=flags,
        randn=Tensor, randint=lambda low, high, shape: Tensor(*shape), compile=compiled, mm=mm,
        nn=space(Linear=Linear), onnx=space(export=export),
    )
    models = space(resnet50=lambda weights: Module(False), vit_b_16=lambda weights: Module(False))
    module("torchvision", models=models)
    module(
        "transformers", BertConfig=lambda return_dict: None, BertModel=lambda config: Module(True),
        GPT2Config=lambda return_dict, use_cache: None, GPT2LMHeadModel=lambda config: Module(True),
    )
    module("onnx")
    module("onnxscript")
    savez = lambda path, **arrays: pathlib.Path(path).write_text(json.dumps(arrays))
    module("numpy", savez=savez)
    return flags


def stand_in(bench):
    """The kit with an Eggine that agrees with everything."""

    class Kit(bench.Kit):
        calls = []

        def eggine(self, *arguments, ok=(0,)):
            arguments = [str(argument) for argument in arguments]
            Kit.calls.append(arguments)
            answers = {
                "doctor": json.dumps([{"what": "cuda", "found": "a stand-in"}]),
                "selftest": json.dumps({"kernels": 1, "n_regions": 1, "wrong": []}),
                "compare": "agrees\n",
                "bench": json.dumps({"samples_ns": [1000.0] * int(arguments[-2])}) if arguments[0] == "bench" else "",
            }
            return types.SimpleNamespace(returncode=0, stdout=answers.get(arguments[0], ""), stderr="")

    return Kit


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", help="a name that the stand-in of torch lacks")
    MISSING[:] = [parser.parse_args().without or "no name is missing"]
    flags = install()
    import bench

    kit = stand_in(bench)
    bench.Kit = kit
    with tempfile.TemporaryDirectory() as root:
        sys.argv = ["bench.py", "--eggine", "eggine", "--root", root]
        status = bench.main()
        assert status == 0, f"status {status}"
        (results,) = pathlib.Path(root).glob("bench/runs/*-stand-in-gpu-unknown/results.json")
        record = json.loads(results.read_text())
    assert not flags.cuda.matmul.allow_tf32 and not flags.cudnn.allow_tf32
    names = [row["model"] for row in record["results"]]
    wanted = [f"{name}-b{batch}" for name in ("resnet50", "bert-base", "vit-b16", "gpt2") for batch in (1, 8)]
    assert sorted(names) == sorted(wanted), f"{names}; skipped {record['skipped']}"
    for row in record["results"]:
        contestants = {"eggine", "torch eager", "torch.compile(max-autotune)", "cuBLAS floor"}
        assert set(row["samples_ns"]) == contestants, row
        assert all(len(samples) == 8 * 25 for samples in row["samples_ns"].values()), row
    assert [call[0] for call in kit.calls][:3] == ["doctor", "selftest", "calibrate"]
    assert len(record["skipped"]) == 1, record["skipped"]
    print("the kit runs: 8 models, 4 contestants each, all of them stand-ins; nothing was measured")


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    main()
