"""Models of the bench: resnet50, bert-base, vit-b16 and gpt2 at batch 1 and 8, exported from torch with
random weights where torch, transformers and numpy are there; the repository's own small examples else,
and in a dry run."""

import dataclasses
import importlib.util
import pathlib


@dataclasses.dataclass
class Model:
    name: str
    batch: int
    onnx: pathlib.Path
    case: pathlib.Path
    tolerance: float
    # Gives the torch module and its inputs, for peers; None without torch.
    torch: object = None


EXAMPLES = ["resnet50", "bert_encoder", "dit_transformer"]
NEEDED = ["torch", "transformers", "torchvision", "onnx", "onnxscript", "numpy"]


def examples(root, names):
    folder = root / "examples/models"
    return [
        Model(name, 1, folder / f"{name}.onnx", folder / f"{name}.case0.npz", 1e-4) for name in names
    ]


def make(kit, folder, root):
    if kit.args.dry:
        kit.skip("resnet50, bert-base, vit-b16, gpt2 of full size", "a dry run has the small examples")
        return examples(root, EXAMPLES)
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        kit.skip("resnet50, bert-base, vit-b16, gpt2 of full size", f"no {', '.join(missing)}")
        return examples(root, EXAMPLES)
    models = []
    for name in BUILDERS:
        for batch in (1, 8):
            try:
                models.append(export(kit, name, batch, folder))
            except Exception as error:  # What cannot be exported is named; the others go on.
                kit.skip(f"{name} at batch {batch}", f"{type(error).__name__}: {error}")
    return models


def resnet50(torch):
    import torchvision

    return torchvision.models.resnet50(weights=None), lambda batch: torch.randn(batch, 3, 224, 224)


def vit(torch):
    import torchvision

    return torchvision.models.vit_b_16(weights=None), lambda batch: torch.randn(batch, 3, 224, 224)


def bert(torch):
    import transformers

    config = transformers.BertConfig(return_dict=False)
    return transformers.BertModel(config), lambda batch: torch.randint(0, 30000, (batch, 128))


def gpt2(torch):
    import transformers

    config = transformers.GPT2Config(return_dict=False, use_cache=False)
    return transformers.GPT2LMHeadModel(config), lambda batch: torch.randint(0, 50000, (batch, 128))


BUILDERS = {"resnet50": resnet50, "bert-base": bert, "vit-b16": vit, "gpt2": gpt2}


def export(kit, name, batch, folder):
    import numpy
    import torch

    torch.manual_seed(0)
    module, inputs_of = BUILDERS[name](torch)
    module = module.eval()
    inputs = inputs_of(batch)
    onnx = folder / f"{name}-b{batch}.onnx"
    with torch.no_grad():
        outputs = module(inputs)
        torch.onnx.export(module, (inputs,), str(onnx), dynamo=True, external_data=False)
    outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    case = folder / f"{name}-b{batch}.npz"
    arrays = {"in0": inputs.numpy()}
    arrays.update({f"out{i}": out.numpy() for i, out in enumerate(outputs)})
    numpy.savez(case, **arrays)
    kit.say(f"{name} at batch {batch}: exported")
    return Model(f"{name}-b{batch}", batch, onnx, case, 1e-3, (module, inputs))
